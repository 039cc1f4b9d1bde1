// A table of collections. The daemon sorts and filters it, so that ten thousand collections are as fast as ten.

import { count, el, setText } from "./dom.js";
import { Rows } from "./rows.js";

const PATH = "/api/v1/overview/namespaces";
const INTERVAL = 5000;

/**
 * The table and its toolbar. `heads` are the heads of the columns: text, sort key or null, class. `falling` contains the keys
 * that are sorted in descending order first. `cells(row)` returns the cells of a row. `phases` are the phases by which the
 * rows can be filtered; empty without this filter. `noun` names a row, such as "namespace".
 */
export class Table {
  constructor({ api, toolbar, parent, heads, falling, cells, phases = [], noun, empty }) {
    Object.assign(this, { api, falling, noun });
    this.sort = "name";
    this.descending = false;
    this.refreshedAt = 0;
    this.known = false;
    this.#addToolbar(toolbar, phases);
    const label = `${noun[0].toUpperCase()}${noun.slice(1)}s`;
    const scroller = el("div", { class: "scroll", role: "rowgroup", tabindex: "0", "aria-label": label });
    this.heads = heads.map((head) => this.#head(...head));
    this.table = el(
      "div", { class: "table", role: "table", "aria-label": label, hidden: true },
      el("div", { role: "rowgroup" }, el("div", { class: "head", role: "row" }, ...this.heads)), scroller,
    );
    this.empty = el("p", { class: "empty", text: empty });
    parent.append(this.empty, this.table);
    this.rows = new Rows({
      element: scroller,
      load: (offset, limit) => this.#load(offset, limit),
      cells,
      onTotal: (total) => this.#showTotal(total),
    });
  }

  /** Show the table if `known` is true; otherwise, show the text `empty` instead. */
  show(known) {
    this.known = known;
    this.table.hidden = !known;
    this.toolbar.hidden = !known;
    this.empty.hidden = known;
  }

  /** Request the visible rows again, at most every few seconds. With `fresh`, request them at once, from the first row on. */
  async refresh(fresh = false) {
    const now = Date.now();
    if (!this.known || (!fresh && now - this.refreshedAt < INTERVAL)) return;
    this.refreshedAt = now;
    await this.rows.refresh(fresh);
  }

  #addToolbar(toolbar, phases) {
    // The next poll tries again.
    const change = () => this.refresh(true).catch(() => {});
    let timer = null;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(change, 200);
    };
    this.search = el("input", {
      type: "search", placeholder: "Search", "aria-label": `Search ${this.noun}s`, maxlength: 1000, on: { input: later },
    });
    this.phase = el(
      "select", { "aria-label": "Phase", hidden: !phases.length, on: { change } }, el("option", { value: "", text: "All phases" }),
      ...phases.map((phase) => el("option", { value: phase, text: phase })),
    );
    this.different = el("input", { type: "checkbox", on: { change } });
    this.total = el("small", { role: "status" });
    this.toolbar = toolbar;
    toolbar.append(this.total, this.search, this.phase, el("label", { class: "check" }, this.different, "Only with differences"));
  }

  #showTotal(total) {
    setText(this.total, `${count(total)} ${this.noun}${total === 1 ? "" : "s"}`);
    this.table.setAttribute("aria-rowcount", total + 1);
  }

  #head(text, key, kind) {
    const element = el("div", { class: kind, role: "columnheader", "data-key": key });
    if (key === null) {
      element.append(el("small", {}, el("b", { text })));
    } else {
      element.append(el("button", { type: "button", text, on: { click: () => this.#sortBy(key) } }));
      if (key === this.sort) element.setAttribute("aria-sort", "ascending");
    }
    return element;
  }

  #sortBy(key) {
    this.descending = key === this.sort ? !this.descending : this.falling.has(key);
    this.sort = key;
    for (const head of this.heads) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.refresh(true).catch(() => {});
  }

  async #load(offset, limit) {
    const query = new URLSearchParams({
      search: this.search.value, sort: this.sort, descending: this.descending, different: this.different.checked, offset, limit,
    });
    if (this.phase.value) query.set("phase", this.phase.value);
    const path = `${PATH}?${query}`;
    // If these rows are no longer in memory, the answer must contain them even if they have not changed.
    if (!this.rows.has(offset)) this.api.forget(path);
    const answer = await this.api.get(path);
    return answer && { rows: answer.namespaces, total: answer.total };
  }
}

/** Return a cell of a row. */
export const cell = (kind, ...content) => el("div", { class: `cell ${kind}`, role: "cell" }, ...content);

/** Return a cell with a bar for a share in percent. */
export function shareCell(kind, share) {
  const bar = el("div");
  bar.style.width = `${share}%`;
  return cell(kind, el("span", { class: "meter", "aria-hidden": "true" }, bar), `${share} %`);
}

/** Return a cell with a name, which is a button. */
export function nameCell(text, click) {
  return cell("", el("button", { type: "button", class: "link", text, title: text, on: { click } }));
}
