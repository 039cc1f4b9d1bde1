// A line chart over time, as SVG. The style sheet defines its colours and its printed form.

import { clock, el, isKnown, svg } from "./dom.js";

const HEIGHT = 168;
const EDGE = { left: 56, right: 10, top: 10, bottom: 24 };
const STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** Return a round number at or above `value`, which must be positive, and the number of steps of the axis from 0 to it. */
export function niceTop(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  for (const [factor, steps] of [[1, 2], [1.5, 3], [2, 4], [3, 3], [4, 4], [5, 5], [6, 3], [8, 4], [10, 5]]) {
    if (factor * size >= value * 0.999) return { top: factor * size, steps };
  }
  return { top: 10 * size, steps: 5 };
}

/**
 * A chart of some columns of the history. Each element of `series` has a `name` and a `column`; `format` formats a value. The
 * vertical axis reaches at least to `least`.
 */
export class Chart {
  constructor({ title, series, format, least, empty = "No data yet." }) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.least = least;
    this.rows = [];
    this.columns = [];
    this.span = 900;
    this.at = null;
    this.legend = el("ul", { class: "legend" });
    this.plot = svg("svg", {
      class: "plot", role: "img", tabindex: "0", height: HEIGHT, width: "100%",
      on: {
        pointermove: (event) => this.#point(event),
        pointerleave: () => this.#mark(null),
        keydown: (event) => this.#key(event),
        blur: () => this.#mark(null),
      },
    });
    this.tip = el("div", { class: "tip", hidden: true });
    this.empty = el("p", { class: "empty", text: empty });
    this.element = el(
      "figure",
      { class: "card chart" },
      el("figcaption", {}, el("h3", { text: title }), this.legend),
      el("div", { class: "area" }, this.plot, this.tip, this.empty),
    );
    new ResizeObserver(() => this.draw()).observe(this.plot.parentElement);
  }

  /** Show these rows. `span` is the minimum time that the chart covers, in seconds. */
  update(columns, rows, span) {
    this.columns = columns;
    this.rows = rows;
    this.span = span;
    this.draw();
  }

  draw() {
    const width = this.plot.parentElement.clientWidth;
    if (!width) return;
    this.width = width;
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const indexes = this.series.map(({ column }) => this.columns.indexOf(column));
    const known = this.rows.some((row) => indexes.some((index) => isKnown(row[index])));
    this.empty.hidden = known;
    const highest = Math.max(0, ...this.rows.flatMap((row) => indexes.map((index) => row[index] ?? 0)));
    const { top, steps } = niceTop(Math.max(highest, this.least));
    const end = this.rows.length ? this.rows.at(-1)[0] : Date.now() / 1000;
    const begin = this.rows.length ? Math.min(end - this.span, this.rows[0][0]) : end - this.span;
    this.x = (time) => EDGE.left + ((time - begin) / (end - begin)) * (width - EDGE.left - EDGE.right);
    this.y = (value) => HEIGHT - EDGE.bottom - (value / top) * (HEIGHT - EDGE.top - EDGE.bottom);
    const parts = [...this.#grid(top, steps, begin, end)];
    indexes.forEach((index, number) => parts.push(...this.#line(index, number)));
    this.cursor = svg("g", { class: "cursor" });
    this.plot.replaceChildren(...parts, this.cursor);
    this.#showLegend(indexes, known, highest);
    this.#mark(this.at === null ? null : Math.min(this.at, this.rows.length - 1));
  }

  *#grid(top, steps, begin, end) {
    for (let step = 0; step <= steps; step += 1) {
      const value = (top * step) / steps;
      const y = this.y(value);
      yield svg("line", { class: step ? "grid" : "axis", x1: EDGE.left, x2: this.width - EDGE.right, y1: y, y2: y });
      yield svg("text", { class: "tick", x: EDGE.left - 8, y: y + 4, "text-anchor": "end", text: this.format(value) });
    }
    const most = Math.max(2, Math.floor(this.width / 110));
    const distance = STEPS.find((each) => (end - begin) / each <= most) ?? STEPS.at(-1);
    const zone = new Date().getTimezoneOffset() * 60;
    for (let time = Math.ceil((begin - zone) / distance) * distance + zone; time <= end; time += distance) {
      const x = this.x(time);
      if (x < EDGE.left + 16 || x > this.width - EDGE.right - 16) continue;
      yield svg("text", { class: "tick", x, y: HEIGHT - 6, "text-anchor": "middle", text: clock(time) });
    }
  }

  *#line(index, number) {
    // Interrupt the line if more than a few points are missing: the page was hidden, or the daemon did not run.
    const gap = 3.5 * Math.max(5, ...this.rows.slice(-2).map((row, n, two) => (n ? row[0] - two[0][0] : 0)));
    const pieces = [];
    let piece = [];
    let before = null;
    for (const row of this.rows) {
      if (!isKnown(row[index]) || (before !== null && row[0] - before > gap)) {
        if (piece.length) pieces.push(piece);
        piece = [];
      }
      if (isKnown(row[index])) piece.push([this.x(row[0]).toFixed(1), this.y(row[index]).toFixed(1)]);
      before = row[0];
    }
    if (piece.length) pieces.push(piece);
    const base = this.y(0).toFixed(1);
    for (const points of pieces) {
      const path = points.map((point) => point.join(" ")).join(" L ");
      if (points.length === 1) {
        yield svg("circle", { class: `dot series-${number}`, cx: points[0][0], cy: points[0][1], r: 2 });
        continue;
      }
      if (number === 0) {
        const area = `M ${points[0][0]} ${base} L ${path} L ${points.at(-1)[0]} ${base} Z`;
        yield svg("path", { class: `fill series-${number}`, d: area });
      }
      yield svg("path", { class: `line series-${number}`, d: `M ${path}` });
    }
  }

  #showLegend(indexes, known, highest) {
    const newest = this.rows.at(-1) ?? [];
    const values = this.series.map(({ name }, number) => [name, this.format(newest[indexes[number]])]);
    this.legend.replaceChildren(
      ...values.map(([name, value], number) =>
        el("li", {}, el("span", { class: `swatch series-${number}` }), `${name} `, el("b", { text: value })),
      ),
    );
    const now = values.map(([name, value]) => `${name} ${value}`).join(", ");
    const label = known ? `${this.title}: now ${now}; highest ${this.format(highest)}.` : `${this.title}: no data yet.`;
    this.plot.setAttribute("aria-label", `${label} Arrow keys read the points.`);
  }

  #point(event) {
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    let best = null;
    this.rows.forEach((row, number) => {
      const distance = Math.abs(this.x(row[0]) - x);
      if (best === null || distance < best[0]) best = [distance, number];
    });
    this.#mark(best ? best[1] : null);
  }

  #key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !this.rows.length) return;
    event.preventDefault();
    const last = this.rows.length - 1;
    this.#mark(Math.max(0, Math.min(last, (this.at ?? last) + steps[event.key])));
  }

  /** Show the values of one row; none if `number` is null. */
  #mark(number) {
    this.at = number;
    this.tip.hidden = number === null || number < 0;
    if (this.tip.hidden) {
      this.cursor?.replaceChildren();
      return;
    }
    const row = this.rows[number];
    const x = this.x(row[0]);
    const dots = this.series.flatMap(({ column }, index) => {
      const value = row[this.columns.indexOf(column)];
      return isKnown(value) ? [svg("circle", { class: `dot series-${index}`, cx: x, cy: this.y(value), r: 3.5 })] : [];
    });
    this.cursor.replaceChildren(svg("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }), ...dots);
    this.tip.replaceChildren(
      el("b", { text: clock(row[0], true) }),
      ...this.series.map(({ name, column }) =>
        el("span", { text: `${name} ${this.format(row[this.columns.indexOf(column)])}` }),
      ),
    );
    const left = x > this.width / 2;
    this.tip.style.left = left ? "" : `${x + 10}px`;
    this.tip.style.right = left ? `${this.width - x + 10}px` : "";
  }
}
