// Small tables.

import { clock, el } from "./dom.js";

/** Return a table with these heads and rows, which are `tr` elements. */
export function list(heads, rows) {
  const head = el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })));
  return el("table", { class: "list" }, el("thead", {}, head), el("tbody", {}, ...rows));
}

/** Return the table of the last commands, or a text if there are none. */
export function commandList(commands) {
  if (!commands.length) return el("p", { class: "empty", text: "This process has answered no command yet." });
  const rows = commands.map((each) =>
    el(
      "tr", {}, el("td", { text: clock(each.time, true) }), el("td", {}, el("b", { text: each.command })),
      el("td", { text: [each.caller, each.address].filter(Boolean).join(", ") }),
      el("td", {
        class: each.success ? "good-text" : "bad-text", title: each.errorDescription, text: each.success ? "accepted" : each.error,
      }),
    ),
  );
  return list(["Time", "Command", "From", "Answer"], rows);
}
