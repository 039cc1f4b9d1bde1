// Builds elements, and formats numbers. Names of collections and texts of errors are hostile input: they only ever become
// text nodes or attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return the element with this id. */
export const byId = (id) => document.getElementById(id);

/** Return a new element. `attributes` may contain `text`, `on` (listeners by event) and `class`; null values are ignored. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return a new SVG element, as `el` does. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, { text, on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Set the text of an element only if it differs, because screen readers announce every change. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return a decorative icon. Screen readers ignore it, because the text beside it says the same. */
export function icon(name) {
  return svg(
    "svg",
    { class: `icon icon-${name}`, "aria-hidden": "true", viewBox: "0 0 16 16" },
    svg("path", { d: ICONS[name] }),
  );
}

const ICONS = {
  ok: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1Zm3.3 4.2L7 9.6 4.8 7.5 3.7 8.6 7 11.8l5.4-5.5Z",
  wait: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1Zm-.8 3v4.4l3.2 2 .8-1.2-2.5-1.6V4Z",
  warning: "M8 1.2 15.5 14.5H.5Zm-.8 5v4h1.6v-4Zm0 5.2V13h1.6v-1.6Z",
  error: "M5 1h6l4 4v6l-4 4H5l-4-4V5Zm.9 3.9L4.9 5.9 7 8l-2.1 2.1 1 1L8 9l2.1 2.1 1-1L9 8l2.1-2.1-1-1L8 7Z",
  next: "M5 2.5 11 8l-6 5.5-1.2-1.2L8.4 8 3.8 3.7Z",
  copy: "M5 1h8v10h-2v4H3V5h2Zm1.5 1.5V5H11v4.500h.5v-7ZM4.5 6.500v7h5v-7Z",
};

const shown = new Map();

/** Call `render(data)` if `data` differs from the data of the last call with this key. */
export function whenChanged(key, data, render) {
  const text = JSON.stringify(data);
  if (shown.get(key) === text) return;
  shown.set(key, text);
  render(data);
}

const NUMBER = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const DECIMAL = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
export const NONE = "–";

export const isKnown = (value) => value !== null && value !== undefined;

/** Return a number with thousands separators, or a dash if it is unknown. */
export const count = (value) => (isKnown(value) ? NUMBER.format(value) : NONE);

const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** Return a number as `count` does, but a large one in millions or billions, such as `612.4M`. */
export const brief = (value) => (isKnown(value) && value >= 10_000_000 ? COMPACT.format(value) : count(value));

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Return a number of bytes with three significant digits, in decimal units. */
export function bytes(value) {
  if (!isKnown(value)) return NONE;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? DECIMAL.format(value) : NUMBER.format(value)} ${UNITS[unit]}`;
}

/** Return a rate as text: with one decimal below ten, otherwise as a whole number. */
export const rate = (value) => (!isKnown(value) ? NONE : value < 10 ? DECIMAL.format(value) : NUMBER.format(value));

const SPANS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** Return a duration in its two largest units, such as `2 h 5 min`. */
export function duration(seconds) {
  if (!isKnown(seconds)) return NONE;
  const whole = Math.max(0, Math.floor(seconds));
  const first = SPANS.findIndex(([, size]) => whole >= size);
  if (first === -1) return "0 s";
  const [name, size] = SPANS[first];
  const lower = SPANS[first + 1];
  const rest = lower ? Math.floor((whole % size) / lower[1]) : 0;
  return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${lower[0]}` : ""}`;
}

/** Return `part` in percent of `whole`, rounded down: 100 only if nothing is left, and null if a number is unknown. */
export function percent(part, whole) {
  if (!isKnown(part) || !isKnown(whole)) return null;
  if (part >= whole) return 100;
  return Math.floor((100 * part) / whole);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };

/** Return a time of the day in the time zone of the reader, with the date unless it is today. */
export function clock(seconds, withSeconds = false) {
  const time = new Date(1000 * seconds);
  const today = new Date().toDateString() === time.toDateString();
  const text = time.toLocaleTimeString("en-GB", withSeconds ? { ...CLOCK, second: "2-digit" } : CLOCK);
  return today ? text : `${time.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${text}`;
}
