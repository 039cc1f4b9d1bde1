// The next command, as text that can be copied.

import { el } from "./dom.js";

/** Return a command of curl that does the same as a button. With a token, it needs the header file of docs/howto/secure.rst. */
export function showCommand(api, { command, body }) {
  // All users of a machine can see the arguments of its processes.
  const header = api.hasToken ? ' --header @"$HOME/syncsvc-header"' : "";
  const url = `${location.origin}/api/v1/${command}`;
  const text = `curl -s ${quoted(url)}${header} --data ${quoted(asciiJson(body ?? {}))}`;
  const copy = el("button", { type: "button", text: "Copy", "aria-label": "Copy the command" });
  copy.addEventListener("click", async () => {
    // Browsers allow it only on https and localhost.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    copy.textContent = done ? "Copied" : "Select it";
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return el("div", { class: "command" }, el("code", { tabindex: "0", text }), copy);
}

/** Return a word of a shell that means exactly this text. A plain one, such as most addresses, needs no quotation marks. */
function quoted(text) {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return JSON of printable ASCII characters: a terminal must not interpret what is pasted. */
function asciiJson(value) {
  return JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
