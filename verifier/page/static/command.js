// The next command, as text that can be copied.

import { el } from "./dom.js";

/** Return an element with the curl command for an API command.
 *
 * With a token, the command reads the header file of docs/howto/secure.rst. */
export function showCommand(api, { command, body }) {
  // All users of a machine can see the arguments of its processes.
  const header = api.hasToken ? ' --header @"$HOME/syncsvc-header"' : "";
  const url = `${location.origin}/api/v1/${command}`;
  const text = `curl -s ${quoted(url)}${header} --data ${quoted(asciiJson(body ?? {}))}`;
  const copy = el("button", { type: "button", text: "Copy", "aria-label": "Copy the command" });
  copy.addEventListener("click", async () => {
    // Browsers allow access to the clipboard only on https and localhost.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    copy.textContent = done ? "Copied" : "Select it";
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return el("div", { class: "command" }, el("code", { tabindex: "0", text }), copy);
}

/** Return the text quoted for a shell. Text without special characters, such as most URLs, needs no quotation marks. */
function quoted(text) {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return JSON with only printable ASCII characters, so that a terminal interprets nothing in the pasted text. */
function asciiJson(value) {
  return JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
