// A tile: one figure with its unit, a progress bar, details and a note.

import { el, isKnown, setText } from "./dom.js";

export class Tile {
  constructor(title, hasMeter = false) {
    this.badge = el("span", { class: "badge", hidden: true });
    this.value = el("span");
    this.unit = el("small");
    this.bar = el("div");
    this.meter = el("div", { class: "meter", role: "progressbar", "aria-label": title, "aria-valuemin": 0, "aria-valuemax": 100 }, this.bar);
    this.meter.hidden = !hasMeter;
    this.list = el("dl");
    this.note = el("p", { class: "note" });
    this.element = el(
      "article", { class: "card tile", "aria-label": title },
      el("div", { class: "tile-head" }, el("h2", { text: title }), this.badge),
      el("div", { class: "figure" }, this.value, " ", this.unit), this.meter, this.list, this.note,
    );
  }

  /** Show a figure with its unit, rows of names and values, and a note; `share` is a percentage, null if unknown. */
  show({ value, unit = "", share = null, rows = [], note = "" }) {
    setText(this.value, value);
    setText(this.unit, unit);
    this.bar.style.width = `${share ?? 0}%`;
    if (isKnown(share)) this.meter.setAttribute("aria-valuenow", share);
    else this.meter.removeAttribute("aria-valuenow");
    this.#rows(rows);
    setText(this.note, note);
    this.note.hidden = !note;
  }

  #rows(rows) {
    if (this.list.children.length !== 2 * rows.length) {
      this.list.replaceChildren(...rows.flatMap(() => [el("dt"), el("dd")]));
    }
    rows.forEach(([name, value], number) => {
      setText(this.list.children[2 * number], name);
      setText(this.list.children[2 * number + 1], value);
    });
  }

  mark(kind, text) {
    this.badge.hidden = !text;
    this.badge.className = `badge ${kind}`;
    setText(this.badge, text ?? "");
  }
}
