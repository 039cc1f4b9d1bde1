// The next command, as text that can be copied.

import { el } from "./dom.js";

/** Return a command of curl that does the same as a button. `token` is the name of the variable with the token. */
export function showCommand(api, token, { command, body }) {
  const header = api.hasToken ? ` -H "Authorization: Bearer $${token}"` : "";
  const text = `curl -s ${location.origin}/api/v1/${command}${header} --data '${JSON.stringify(body ?? {})}'`;
  const copy = el("button", { type: "button", text: "Copy", "aria-label": "Copy the command" });
  copy.addEventListener("click", async () => {
    // Browsers allow it only on https and localhost.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    copy.textContent = done ? "Copied" : "Select it";
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return el("div", { class: "command" }, el("code", { tabindex: "0", text }), copy);
}
