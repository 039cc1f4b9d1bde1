// The parts of the frame that both pages have: the state of the connection to the daemon, and the warnings.

import { byId, clock, el, icon, setText } from "./dom.js";

let answeredAt = null;

function contact(kind, text) {
  const element = byId("contact");
  element.className = `contact ${kind}`;
  setText(element, text);
}

/** Show that the daemon has answered. */
export function showAnswer() {
  answeredAt = Date.now() / 1000;
  contact("live", "Live");
}

/** Show and announce that the daemon does not answer. `reason` says why, and `hint` what an operator can do. */
export function showSilence(reason, hint = "") {
  const last = answeredAt === null ? "" : `Last answer at ${clock(answeredAt)}.`;
  const text = [`${reason.replace(/\.$/, "")}.`, last, hint].filter(Boolean).join(" ");
  contact("lost", text);
  setText(byId("announcement"), text);
}

/** Show the warnings. Each has a `text`, and optionally in `help` the URL of the page about its remedy. */
export function showWarnings(warnings) {
  byId("warnings-section").hidden = !warnings.length;
  byId("warnings").replaceChildren(
    ...warnings.map(({ text, help }) =>
      el("li", {}, icon("warning"), el("p", {}, `${text} `, help ? el("a", { href: help, rel: "noreferrer", target: "_blank", text: "What to do" }) : null)),
    ),
  );
}
