// Dialogs for commands. The browser keeps the focus inside an open dialog, and returns it afterwards.

import { el } from "./dom.js";

/**
 * Open a dialog, and return its element. `content` contains the elements of the dialog. Each action has `text`, `run`, and
 * `kind` (primary or danger). `run` returns a promise: while it is pending, the buttons are disabled. Afterwards, the dialog
 * closes, unless the promise resolves to false. An error is shown in the dialog.
 */
export function open(title, content, actions, { wide = false } = {}) {
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const close = el("button", { type: "button", text: "Close", on: { click: () => dialog.close() } });
  const buttons = actions.map((action, number) =>
    el("button", {
      type: number === actions.length - 1 ? "submit" : "button", class: action.kind ?? "", text: action.text,
      ...(number === actions.length - 1 ? {} : { on: { click: () => run(action) } }),
    }),
  );
  const form = el(
    "form",
    { method: "dialog", on: { submit: (event) => submit(event) } },
    el("h2", { id: "dialog-title", text: title }),
    el("div", { class: "dialog-body" }, ...content),
    problem,
    el("div", { class: "dialog-actions" }, close, ...buttons),
  );
  const dialog = el("dialog", { class: wide ? "wide" : "", "aria-labelledby": "dialog-title" }, form);

  function submit(event) {
    event.preventDefault();
    if (actions.length) run(actions.at(-1));
    else dialog.close();
  }

  async function run(action) {
    problem.hidden = true;
    const disabled = buttons.map((button) => button.disabled);
    buttons.forEach((button) => (button.disabled = true));
    try {
      if ((await action.run(form)) !== false) dialog.close();
    } catch (error) {
      problem.textContent = error.kind ? `${error.kind}: ${error.message}` : error.message;
      problem.hidden = false;
    } finally {
      buttons.forEach((button, number) => (button.disabled = disabled[number]));
    }
  }

  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Return a labelled field. `control` is an input, select or textarea. */
export function field(label, control, hint = null) {
  return el("label", { class: "field" }, el("span", { text: label }), control, hint && el("small", { text: hint }));
}

/** Ask the user for a token, and return a promise of it. `refused` says whether the API refused the last token. */
export function askForToken(refused) {
  return new Promise((resolve) => {
    const input = el("input", { type: "password", autocomplete: "off", required: true, name: "token" });
    const text = refused ? "The API refused the token. Enter another token." : "The API needs a token.";
    const hint = "The page keeps the token until you close this tab.";
    const dialog = open("Sign in", [el("p", { text }), field("Token", input, hint)], [
      {
        text: "Sign in",
        kind: "primary",
        run: () => {
          if (!input.value.trim()) return Promise.resolve(false);
          resolve(input.value.trim());
          return Promise.resolve(true);
        },
      },
    ]);
    // If no token was entered, resolve as well: the API refuses the next request, and the page asks again.
    dialog.addEventListener("close", () => resolve(input.value.trim()));
  });
}
