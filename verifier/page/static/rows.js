// A table for a very large number of rows. It requests and creates only the rows that are visible.

import { el } from "./dom.js";

const HEIGHT = 40;
const PAGE = 100;
const BEYOND = 6;

/**
 * The rows of a table. `load(offset, limit)` returns a promise of `{rows, total}`, or of null if they have not changed.
 * `cells(row)` returns the cells of a row.
 */
export class Rows {
  constructor({ element, load, cells, onTotal = () => {} }) {
    this.load = load;
    this.cells = cells;
    this.onTotal = onTotal;
    this.total = 0;
    this.pages = new Map();
    this.drawn = new Map();
    this.asked = new Set();
    this.version = 0;
    this.scroller = element;
    this.sizer = el("div", { class: "sizer", role: "presentation" });
    element.append(this.sizer);
    element.addEventListener("scroll", () => this.#later(), { passive: true });
    new ResizeObserver(() => this.#later()).observe(element);
  }

  /** Return whether the page of rows with this offset is in memory. */
  has(offset) {
    return this.pages.has(Math.floor(offset / PAGE));
  }

  /** Request the visible rows again. Pass `fresh` if the order or the selection has changed, to forget all rows. */
  async refresh(fresh = false) {
    if (fresh) {
      this.version += 1;
      this.pages.clear();
      this.asked.clear();
      this.scroller.scrollTop = 0;
    }
    await Promise.all([...this.#visiblePages()].map((page) => this.#fetch(page)));
    this.#draw();
  }

  #later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      // A hidden table needs no rows.
      if (!this.scroller.clientHeight) return;
      this.#draw();
      for (const page of this.#visiblePages()) if (!this.pages.has(page)) this.#fetch(page).then(() => this.#draw(), () => {});
    });
  }

  #range() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / HEIGHT) - BEYOND);
    const shown = Math.ceil(this.scroller.clientHeight / HEIGHT) + 2 * BEYOND;
    return [first, Math.min(this.total, first + shown)];
  }

  *#visiblePages() {
    const [first, end] = this.#range();
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, end - 1) / PAGE); page += 1) yield page;
  }

  async #fetch(page) {
    if (this.asked.has(page)) return;
    this.asked.add(page);
    const { version } = this;
    try {
      const answer = await this.load(page * PAGE, PAGE);
      if (answer === null || version !== this.version) return;
      this.pages.set(page, answer.rows);
      this.total = answer.total;
      this.onTotal(answer.total);
    } finally {
      if (version === this.version) this.asked.delete(page);
    }
  }

  #draw() {
    this.sizer.style.height = `${this.total * HEIGHT}px`;
    this.scroller.style.height = `min(${Math.max(1, this.total) * HEIGHT}px, 520px, 70vh)`;
    const [first, end] = this.#range();
    for (const [number, drawn] of this.drawn) {
      if (number < first || number >= end) {
        drawn.element.remove();
        this.drawn.delete(number);
      }
    }
    for (let number = first; number < end; number += 1) this.#drawRow(number);
  }

  #drawRow(number) {
    const row = this.pages.get(Math.floor(number / PAGE))?.[number % PAGE];
    const text = JSON.stringify(row);
    const before = this.drawn.get(number);
    if (before?.text === text) return;
    const element = el("div", { class: "row", role: "row", "aria-rowindex": number + 2 }, ...this.#cells(row));
    element.style.transform = `translateY(${number * HEIGHT}px)`;
    if (before) {
      const focused = before.element.contains(document.activeElement);
      before.element.replaceWith(element);
      if (focused) element.querySelector("button")?.focus();
    } else {
      this.sizer.append(element);
    }
    this.drawn.set(number, { element, text });
  }

  #cells(row) {
    return row ? this.cells(row) : [el("div", { class: "cell", role: "cell", text: "…" })];
  }
}
