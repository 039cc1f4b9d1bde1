// The limits at run time, if the daemon has them.

import { Refused, withTyped } from "./api.js";
import { field, open } from "./dialog.js";
import { factList } from "./differences.js";
import { byId, bytes, clock, count, el, isKnown, whenChanged } from "./dom.js";

const PATH = "/api/v1/limits";
const INTERVAL = 5000;
// The limits that are numbers: name, text, unit, factor from the unit that people type.
const NUMBERS = [
  ["copyBytesPerSecond", "Copy", "MB/s", 1e6], ["copyDocumentsPerSecond", "Documents copied", "1/s", 1],
  ["eventsPerSecond", "Change events applied", "1/s", 1], ["threads", "Threads", "", 1],
];

export class Limits {
  constructor(api, changed) {
    this.api = api;
    this.changed = changed;
    this.known = false;
    this.absent = false;
    this.askedAt = 0;
    byId("limits-button").addEventListener("click", () => this.open());
  }

  async refresh() {
    const now = Date.now();
    if (this.absent || now - this.askedAt < INTERVAL) return;
    this.askedAt = now;
    try {
      const answer = await this.api.get(PATH);
      if (answer) this.#show(answer);
    } catch (error) {
      // A daemon without this endpoint.
      if (error instanceof Refused && error.status === 404) this.absent = true;
    }
  }

  #show(answer) {
    this.answer = answer;
    this.known = true;
    byId("limits-section").hidden = false;
    whenChanged("limits", answer, () => byId("limits").replaceChildren(...this.#content(answer)));
  }

  #content({ limits, effective, throttledBy }) {
    const parts = [];
    if (throttledBy) {
      const since = isKnown(throttledBy.since) ? ` since ${sinceText(throttledBy.since)}` : "";
      parts.push(el("p", {}, el("b", { text: `Throttled: ${throttledBy.what}` }), `${since}. ${throttledBy.reason ?? ""}`));
    }
    const facts = NUMBERS.map(([name, text, unit]) => [unit === "1/s" ? `${text} (1/s)` : text, shown(name, limits?.[name], effective?.[name])]);
    parts.push(factList(facts));
    return parts;
  }

  open() {
    const { limits } = this.answer;
    const inputs = NUMBERS.filter(([name]) => typeof limits[name] !== "object" || limits[name] === null).map(([name, text, unit, factor]) => {
      const value = isKnown(limits[name]) ? limits[name] / factor : "";
      return [name, factor, field(unit ? `${text} (${unit})` : text, el("input", { type: "number", min: 0, step: "any", name, value, placeholder: "no limit" }))];
    });
    const others = Object.fromEntries(Object.entries(limits).filter(([name]) => !inputs.some(([own]) => own === name)));
    const shownOthers = JSON.stringify(others, null, 2);
    const more = el("textarea", { name: "more", spellcheck: "false", text: shownOthers });
    open("Limits", [
      el("div", { class: "fields" }, ...inputs.map(([, , element]) => element)),
      field("Time windows and automatic limits (JSON)", more, "See the documentation of PATCH /api/v1/limits."),
    ], [{
      text: "Save",
      kind: "primary",
      run: async (form) => {
        // Only what was changed here: another operator may have changed other limits meanwhile.
        const numbers = {};
        for (const [name, factor] of inputs) {
          const { value, defaultValue } = form.elements[name];
          if (value !== defaultValue) numbers[name] = value === "" ? null : Math.round(Number(value) * factor);
        }
        const body = withTyped(numbers, more.value.trim() === shownOthers ? "" : more.value);
        if (body !== "{}") await this.api.send(PATH, body, "PATCH");
        this.askedAt = 0;
        this.api.forget(PATH);
        this.changed();
      },
    }]);
  }
}

function shown(name, limit, effective) {
  const one = (value) => {
    if (!isKnown(value)) return "no limit";
    if (typeof value === "object") return JSON.stringify(value);
    return name === "copyBytesPerSecond" ? `${bytes(value)}/s` : count(value);
  };
  return isKnown(effective) && JSON.stringify(effective) !== JSON.stringify(limit) ? `${one(limit)}, now ${one(effective)}` : one(limit);
}

function sinceText(since) {
  const time = typeof since === "number" ? since : Date.parse(since) / 1000;
  return Number.isFinite(time) ? clock(time) : String(since);
}
