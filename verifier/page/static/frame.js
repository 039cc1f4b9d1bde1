// The parts of the frame that both pages have: the state of the connection to the daemon, and the warnings.

import { byId, el, icon, setText } from "./dom.js";

/** Show whether the daemon answers: `kind` is live or lost. */
export function contact(kind, text) {
  const element = byId("contact");
  element.className = `contact ${kind}`;
  setText(element, text);
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
