// A dialog with the figures of one collection, and its differences down to their fields.

import { Refused } from "./api.js";
import { open } from "./dialog.js";
import { el, setText } from "./dom.js";

const PAGE = 50;
const TYPES = { missingOnDst: "missing on the destination", extraOnDst: "extra on the destination", content: "different" };

/** Open the dialog. `facts` contains names and values. `paths` are the endpoints whose differences are listed in turn. */
export function openDifferences(api, namespace, facts, paths) {
  const found = el("div", { class: "dialog-body" });
  const more = el("button", { type: "button", text: "Show more", hidden: true });
  const status = el("p", { class: "empty", role: "status", text: "Reading the differences." });
  open(namespace, [factList(facts), el("h3", { text: "Differences" }), found, status, more], [], { wide: true });
  const left = [...paths];
  let after = null;

  async function load() {
    more.disabled = true;
    try {
      let room = PAGE;
      while (left.length && room) {
        const query = new URLSearchParams({ namespace, limit: room, ...(after ? { after } : {}) });
        const lines = await api.lines(`${left[0]}?${query}`);
        found.append(...lines.map(difference));
        after = lines.at(-1)?.place ?? after;
        if (lines.length < room) {
          left.shift();
          after = null;
        }
        room -= Math.min(room, lines.length);
      }
      more.hidden = !left.length;
      setText(status, found.children.length ? "" : "No differences are known.");
    } catch (error) {
      more.hidden = false;
      setText(status, error instanceof Refused ? `${error.kind}: ${error.message}` : "No answer from the daemon.");
    }
    more.disabled = false;
  }

  more.addEventListener("click", load);
  load();
}

/** Return a list of names and values. */
export function factList(facts) {
  return el("dl", { class: "facts" }, ...facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
}

/** Return the element for one difference. */
function difference(line) {
  const kind = TYPES[line.type] ?? line.type;
  if ("aspect" in line) {
    const what = [line.aspect, line.component].filter(Boolean).join(" ");
    return el("div", { class: "difference" }, el("b", { text: `${what}: ${kind}` }), el("span", { text: line.detail }));
  }
  return el(
    "div", { class: "difference" },
    el("div", {}, el("code", { text: `_id ${JSON.stringify(line._id)}` }), ` (${line.idType}) is ${kind}`),
    el("ul", {}, ...line.fields.map(({ path, detail }) => el("li", {}, el("code", { text: path || "(document)" }), ` ${detail}`))),
  );
}
