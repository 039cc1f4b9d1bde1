// Talks to the API of the daemon that served the page, and polls it while the page is visible.

const TOKEN = "token";
const PATIENCE = 20_000;

/** An error answer of the API. `kind` is the name of the error. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.errorDescription || `The request was answered with status ${status}.`);
    this.status = status;
    this.kind = body?.error || String(status);
  }
}

/** Return the digits of an integer that JavaScript would round, such as a large `_id`, as text. */
function exact(key, value, context) {
  const rounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return rounded ? context?.source ?? `about ${value}` : value;
}

/**
 * Return the text that a user entered, or "{}" if it is empty. If the text is not a JSON object, throw an error whose
 * message is for the operator.
 *
 * Send the text itself. JSON.stringify(JSON.parse(text)) would round large integers, drop repeated fields, and move fields
 * such as "2" to the front; the daemon reads the text exactly, or refuses it.
 */
export function typedObject(text) {
  if (!text.trim()) return "{}";
  const value = JSON.parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error('The JSON must be an object, such as {"name": "value"}.');
  return text;
}

/** Return the JSON text of an object with the fields of `own` and of the entered `text`. Fields of `text` have precedence. */
export function withTyped(own, text) {
  const typed = typedObject(text);
  const names = new Set(Object.keys(JSON.parse(typed)));
  const rest = Object.fromEntries(Object.entries(own).filter(([name]) => !names.has(name)));
  const fields = [JSON.stringify(rest), typed].map((each) => each.trim().slice(1, -1));
  return `{${fields.filter((each) => each.trim()).join(",")}}`;
}

/** The API of one daemon. `askForToken` is called when the daemon requires a token, and returns a promise of a token. */
export class Api {
  constructor(askForToken) {
    this.askForToken = askForToken;
    this.tags = new Map();
    this.asking = null;
  }

  get hasToken() {
    return sessionStorage.getItem(TOKEN) !== null;
  }

  /** Return the JSON answer to a GET; null if it equals the last answer for the same path. */
  async get(path) {
    const tag = this.tags.get(path);
    const answer = await this.#send(path, { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 304) return null;
    const body = await answer.json();
    const newTag = answer.headers.get("ETag");
    if (newTag) this.#remember(path, newTag);
    return body;
  }

  /** Forget the last answer for a path, so that the next `get` returns an answer even if it is the same. */
  forget(path) {
    this.tags.delete(path);
  }

  #remember(path, tag) {
    // Paths contain values that change, such as a cursor, so only the newest few paths are requested again.
    if (this.tags.size > 50) this.tags.clear();
    this.tags.set(path, tag);
  }

  /** Return the answer to a GET as text. */
  async text(path) {
    return (await this.#send(path, {})).text();
  }

  /** Return the lines of a streamed answer as objects. */
  async lines(path) {
    const text = await this.text(path);
    const lines = text.split("\n").filter(Boolean).map((line) => JSON.parse(line, exact));
    const last = lines.at(-1);
    if (last?.success === false) throw new Refused(200, last);
    return lines;
  }

  /** Send a command, and return its answer. `body` is an object, or the text of a JSON object, which is sent unchanged. */
  async send(path, body, method = "POST") {
    const headers = { "Content-Type": "application/json" };
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return (await this.#send(path, { method, headers, body: text })).json();
  }

  /** Ask the user for a token, once for all requests that wait for a token. */
  #newToken(refused) {
    this.asking ??= this.askForToken(refused).then((token) => {
      sessionStorage.setItem(TOKEN, token);
      this.asking = null;
    });
    return this.asking;
  }

  async #send(path, options) {
    for (;;) {
      const token = sessionStorage.getItem(TOKEN);
      const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
      // A command may take long, because it waits for both clusters.
      const signal = options.method ? undefined : AbortSignal.timeout(PATIENCE);
      const answer = await fetch(path, { ...options, headers, signal, cache: "no-store" });
      if (answer.ok || answer.status === 304) return answer;
      const body = await answer.json().catch(() => null);
      if (answer.status !== 401) throw new Refused(answer.status, body);
      // Another request may have got a new token meanwhile.
      if (sessionStorage.getItem(TOKEN) === token) await this.#newToken(token !== null);
    }
  }
}

/**
 * Call `step` again `interval()` milliseconds after its last call has ended, while the page is visible; at once when the page
 * becomes visible again. Return a function that makes the next call at once.
 */
export function poll(step, interval) {
  let timer = null;
  let running = false;
  let again = false;

  async function run() {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      do {
        again = false;
        await step();
      } while (again);
    } finally {
      running = false;
      if (!document.hidden) timer = setTimeout(run, interval());
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else run();
  });
  if (!document.hidden) run();
  return run;
}
