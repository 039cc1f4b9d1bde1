// The link to the report, which the API makes as one HTML file.

import { open } from "./dialog.js";
import { el } from "./dom.js";

const PATH = "/api/v1/report?format=html";

/** Return a link to the report. A link cannot send a token: if there is one, the page downloads the report as the file `name`. */
export function reportLink(api, name) {
  const link = el("a", { class: "button", href: PATH, target: "_blank", rel: "noopener", text: "Report", hidden: true, "data-command": "report" });
  link.addEventListener("click", async (event) => {
    if (!api.hasToken) return;
    event.preventDefault();
    try {
      const url = URL.createObjectURL(new Blob([await api.text(PATH)], { type: "text/html" }));
      el("a", { href: url, download: name }).click();
      URL.revokeObjectURL(url);
    } catch (error) {
      open("No report", [el("p", { class: "problem", text: error.message })], []);
    }
  });
  return link;
}
