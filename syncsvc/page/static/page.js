// The page of the sync service. It asks for the overview every two seconds, and shows what has changed.

import { Api, Refused, poll } from "./api.js";
import { Chart } from "./chart.js";
import { showCommand } from "./command.js";
import { actionsOf } from "./commands.js";
import { askForToken } from "./dialog.js";
import { byId, bytes, clock, duration, el, icon, isKnown, NONE, rate, setText, whenChanged } from "./dom.js";
import { Limits } from "./limits.js";
import { namespacesTable } from "./namespaces.js";
import { showAnswer, showSilence, showWarnings } from "./frame.js";
import { commandList, list } from "./lists.js";
import { tiles } from "./tiles.js";

const OVERVIEW = "/api/v1/overview";
const INTERVAL = 2000;
const AFTER_FAILURE = 5000;
const MOST_ROWS = 1500;
const RANGES = { "15m": ["15 minutes", 900], "6h": ["6 hours", 21600], all: ["All", 900] };
const KINDS = {
  RUNNING: "info", COMMITTING: "info", REVERSING: "info", COMMITTED: "good", PAUSED: "warn", FAILED: "bad", RESETTING: "warn",
};
// The states in which the heartbeats of other instances are read.
const HEARD = ["RUNNING", "COMMITTING", "REVERSING"];
// The sections that a standby does not show.
const FIGURES = ["tiles", "charts-section", "namespaces-section"];
// The phases of every sync, in order.
const USUAL = [
  "initializing collections and indexes", "collection copy", "change event application", "waiting for commit to complete",
  "commit completed",
];

const api = new Api(askForToken);
const charts = [
  new Chart({
    title: "Copy",
    least: 1000,
    series: [{ name: "copied", column: "copiedBytesPerSecond" }],
    format: (value) => (isKnown(value) ? `${bytes(value)}/s` : "–"),
  }),
  new Chart({
    title: "Change events per second",
    least: 10,
    series: [{ name: "read", column: "eventsReadPerSecond" }, { name: "applied", column: "eventsAppliedPerSecond" }],
    format: rate,
  }),
  new Chart({ title: "Lag", least: 10, series: [{ name: "behind the source", column: "lagSeconds" }], format: duration }),
  new Chart({
    title: "Latency of the clusters",
    least: 1,
    series: [{ name: "source", column: "sourceLatencyMs" }, { name: "destination", column: "destinationLatencyMs" }],
    format: (value) => (isKnown(value) ? `${rate(value)} ms` : "–"),
  }),
  new Chart({
    title: "Throttling: threads that wait for a limit",
    least: 1,
    series: [
      { name: "copy", column: "throttledCopyThreads" }, { name: "change events", column: "throttledEventThreads" },
      { name: "threads", column: "throttledThreads" },
    ],
    format: rate,
  }),
];
const history = { range: "15m", cursor: null, rows: [], columns: [] };
const panels = tiles(byId("tiles"));
const namespaces = namespacesTable(api, byId("toolbar"), byId("namespaces"));
const limits = new Limits(api, () => refresh());
const actions = actionsOf(api, () => refresh(), limits);
let failures = 0;
// The progress in the last answer.
let newest = null;

byId("charts").append(...charts.map((chart) => chart.element));
byId("actions").append(...actions.buttons);
byId("ranges").append(
  ...Object.entries(RANGES).map(([range, [text]]) =>
    el("button", {
      type: "button", text, "data-range": range, "aria-pressed": String(range === history.range),
      on: { click: () => showRange(range) },
    }),
  ),
);
const refresh = poll(step, () => (failures ? AFTER_FAILURE : INTERVAL));

function showRange(range) {
  Object.assign(history, { range, cursor: null });
  for (const button of byId("ranges").children) button.setAttribute("aria-pressed", String(button.dataset.range === range));
  refresh();
}

async function step() {
  const { range, cursor } = history;
  const since = cursor ? `&since=${encodeURIComponent(cursor)}` : "";
  const path = `${OVERVIEW}?history=${range}${since}`;
  // The rows of this answer may have been replaced by those of another range.
  if (!cursor) api.forget(path);
  let answer = null;
  try {
    answer = await api.get(path);
    failures = 0;
    showAnswer();
  } catch (error) {
    failures += 1;
    showSilence(error instanceof Refused ? error.message : "No answer from the daemon", otherDaemon());
    return;
  }
  if (answer && range === history.range) show(answer.overview);
  await Promise.allSettled([namespaces.refresh(), limits.refresh()]);
}

/** Return a sentence that says which daemon to ask instead of this one; "" without --standby. */
function otherDaemon() {
  const { role, lease } = newest ?? {};
  if (role === "standby" && lease) return `The lease was last held by the daemon on ${lease.host}, at ${lease.address}.`;
  return role === "active" ? "If this daemon does not run any more, another one takes over if it runs with --standby: open its page." : "";
}

function show(overview) {
  const { progress } = overview;
  newest = progress;
  // Only the active daemon knows the figures.
  for (const id of FIGURES) byId(id).hidden = progress.role === "standby";
  showHistory(overview.history);
  whenChanged("sentence", [overview.summary, overview.commit, progress, overview.next], () => showState(overview));
  whenChanged("warnings", overview.warnings, showWarnings);
  // Every time, because the current phase gets longer.
  showPhases(overview);
  panels.show(overview);
  // On a standby, the summary says which daemon is active.
  const own = progress.role === "standby" ? overview.summary : progress.role === "active" ? "This daemon is active." : "";
  whenChanged("instances", [overview.instances, own, progress.state], () => showInstances(overview.instances, own, HEARD.includes(progress.state)));
  whenChanged("commands", overview.recentCommands, (commands) => byId("commands").replaceChildren(commandList(commands)));
  actions.show(overview);
  namespaces.show(overview.namespaces.total > 0 && progress.role !== "standby");
}

function showHistory({ columns, rows, cursor, restart }) {
  history.rows = restart ? rows : [...history.rows, ...rows].slice(-MOST_ROWS);
  Object.assign(history, { columns, cursor });
  const span = RANGES[history.range][1];
  if (history.range !== "all" && history.rows.length) {
    const oldest = history.rows.at(-1)[0] - span;
    history.rows = history.rows.filter((row) => row[0] >= oldest);
  }
  for (const chart of charts) chart.update(columns, history.rows, span);
}

function showState(overview) {
  const { progress, commit, summary } = overview;
  setText(byId("sentence"), summary);
  const badge = byId("state");
  badge.hidden = false;
  badge.className = `badge ${KINDS[progress.state] ?? "quiet"}`;
  setText(badge, progress.state);
  document.title = `${progress.state} · syncsvc`;
  const failure = byId("failure");
  failure.hidden = !progress.error;
  setText(failure, progress.errorDescription ?? progress.error ?? "");
  byId("declared").hidden = !progress.desiredState;
  setText(byId("declared"), `The configuration declares desiredState ${progress.desiredState}.`);
  byId("commit").hidden = ["COMMITTING", "COMMITTED"].includes(progress.state);
  whenChanged("commit", commit, showCommit);
  whenChanged("next", [overview.next, overview.commit.possible], () => showNext(overview.next));
  whenChanged("route", progress.directionMapping, showRoute);
  setText(byId("identity"), `Instance ${progress.mongosyncID}`);
  // The numbers in the sentence change all the time: announce only what an operator waits for.
  const possible = commit.possible ? "A commit is possible." : "";
  const phase = progress.info ? `, ${progress.info}` : "";
  setText(byId("announcement"), `State ${progress.state}${phase}. ${possible}`.trim());
}

function showCommit({ possible, reasons }) {
  const element = byId("commit");
  element.className = possible ? "verdict good" : "verdict";
  const head = el("b", { text: possible ? "A commit is possible." : "No commit is possible now:" });
  const text = reasons.length === 1 ? el("p", {}, head, ` ${reasons[0]}`) : el(
    "div", {}, el("p", {}, head), el("ul", {}, ...reasons.map((reason) => el("li", { text: reason }))),
  );
  element.replaceChildren(icon(possible ? "ok" : "wait"), text);
}

function showNext(next) {
  const element = byId("next");
  element.hidden = next === null;
  if (next === null) return;
  element.replaceChildren(el("p", { text: `Next: ${next.text}` }), ...(next.command ? [showCommand(api, next)] : []));
}

function showRoute(mapping) {
  const side = (text) => {
    const [name, ...address] = text.split(": ");
    return el("span", {}, el("b", { text: name }), ` ${address.join(": ")}`);
  };
  byId("route").replaceChildren(
    ...(mapping ? [side(mapping.Source), icon("next"), el("span", { class: "visually-hidden", text: "to" }), side(mapping.Destination)] : []),
  );
}

function showPhases({ phases, progress }) {
  byId("phases-section").hidden = !phases.length;
  const last = phases.length - 1;
  const ended = ["COMMITTED", "FAILED", "RESETTING"].includes(progress.state);
  const items = phases.map(({ phase, began, seconds }, number) => {
    const running = number === last && !ended;
    const time = seconds ?? (running ? Date.now() / 1000 - began : null);
    const failed = number === last && progress.state === "FAILED";
    return [running ? "now" : failed ? "failed" : "done", phase, `${clock(began)}${isKnown(time) ? ` · ${duration(time)}` : ""}`];
  });
  const place = USUAL.indexOf(phases.at(-1)?.phase);
  if (place !== -1 && !ended) items.push(...USUAL.slice(place + 1).map((phase) => ["ahead", phase, ""]));
  whenChanged("phases", items, () =>
    byId("phases").replaceChildren(
      ...items.map(([kind, phase, text]) =>
        el("li", { class: kind, "aria-current": kind === "now" ? "step" : null }, el("b", { text: phase }), text),
      ),
    ),
  );
}

/** Show the instances. `own` is the role of this daemon, and `heard` is whether it reads the heartbeats of the others now. */
function showInstances(instances, own, heard) {
  const parts = [];
  if (own) parts.push(el("p", { text: own }));
  if (instances.length) parts.push(instanceTable(instances, heard));
  if (!parts.length) parts.push(el("p", { class: "empty", text: "No other instance of the sync is known, and this daemon runs without --standby." }));
  byId("instances").replaceChildren(...parts);
}

function instanceTable(instances, heard) {
  const rows = instances.map((each) =>
    el(
      "tr", {}, el("td", { text: each.coordinates ? `${each.name} (coordinator)` : each.name }), el("td", { text: each.state }),
      el("td", { text: each.phase }),
      el("td", { class: heard && each.silentSeconds > 10 ? "bad-text" : "", text: !heard ? NONE : each.silentSeconds > 10 ? `${duration(each.silentSeconds)} ago` : "now" }),
    ),
  );
  return list(["Instance", "State", "Phase", "Heartbeat"], rows);
}
