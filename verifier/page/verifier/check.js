// The page of the verifier. It requests the overview every two seconds, and updates what has changed.

import { Api, Refused, poll, typedObject } from "./api.js";
import { Chart } from "./chart.js";
import { showCommand } from "./command.js";
import { askForToken, field, open } from "./dialog.js";
import { openDifferences } from "./differences.js";
import { brief, byId, bytes, clock, count, duration, el, isKnown, NONE, percent, rate, setText, whenChanged } from "./dom.js";
import { showAnswer, showSilence, showWarnings } from "./frame.js";
import { commandList } from "./lists.js";
import { reportLink } from "./report.js";
import { cell, nameCell, shareCell, Table } from "./table.js";
import { Tile } from "./tile.js";

const OVERVIEW = "/api/v1/overview";
const INTERVAL = 2000;
const AFTER_FAILURE = 5000;
const MOST_ROWS = 1800;
const KINDS = { passed: "good", failed: "bad", incomplete: "warn" };
const COLUMNS = ["time", "documents", "bytes", "source", "destination"];
const HEADS = [
  ["Namespace", "name", ""], ["Compared", null, ""], ["Documents", "documents", "number optional"],
  ["Size", "bytes", "number optional"], ["Tasks", null, "number optional extra"], ["Different documents", "mismatches", "number"],
];

const api = new Api(askForToken);
const tiles = {
  compared: new Tile("Documents compared", true), rechecks: new Tile("Compared again"), changes: new Tile("Change events"),
  differences: new Tile("Differences"),
};
const charts = [
  new Chart({ title: "Documents compared per second", least: 10, series: [{ name: "documents", column: "documents" }], format: rate }),
  new Chart({
    title: "Lag behind the change events",
    least: 10,
    series: [{ name: "source", column: "source" }, { name: "destination", column: "destination" }], format: duration,
  }),
];
const table = new Table({
  api, toolbar: byId("toolbar"), parent: byId("namespaces"), heads: HEADS, falling: new Set(["documents", "bytes", "mismatches"]),
  noun: "namespace", empty: "No namespaces to show. A check lists them when it begins to compare their documents.", cells,
});
const buttons = {
  check: el("button", { type: "button", text: "Start a check", disabled: true, "data-command": "check", on: { click: checkDialog } }),
  writesOff: el("button", { type: "button", text: "End the check", disabled: true, "data-command": "writesOff", on: { click: endDialog } }),
};
const forReport = reportLink(api, "syncsvc-verifier-report.html");
let rows = [];
let newest = null;
let failures = 0;

byId("tiles").append(...Object.values(tiles).map((tile) => tile.element));
byId("charts").append(...charts.map((chart) => chart.element));
byId("actions").append(...Object.values(buttons), forReport);
const refresh = poll(step, () => (failures ? AFTER_FAILURE : INTERVAL));

async function step() {
  try {
    const answer = await api.get(OVERVIEW);
    newest = answer?.overview ?? newest;
    failures = 0;
    showAnswer();
  } catch (error) {
    failures += 1;
    showSilence(error instanceof Refused ? error.message : "No answer from the verifier");
    return;
  }
  show(newest);
  await table.refresh().catch(() => {});
}

function show(overview) {
  const { progress } = overview;
  setText(byId("sentence"), overview.summary);
  const state = progress.verdict ?? progress.phase;
  const badge = byId("state");
  badge.hidden = false;
  badge.className = `badge ${KINDS[progress.verdict] ?? (progress.phase === "idle" ? "quiet" : "info")}`;
  setText(badge, state.toUpperCase());
  document.title = `${state} · syncsvc-verifier`;
  const reasons = [progress.error ?? progress.verdictReasons.join(" ")].filter(Boolean);
  byId("failure").hidden = !reasons.length;
  setText(byId("failure"), reasons.join(" "));
  setText(byId("announcement"), overview.summary);
  whenChanged("next", overview.next, showNext);
  whenChanged("warnings", (progress.warnings ?? []).map((text) => ({ text })), showWarnings);
  whenChanged("commands", overview.recentCommands, (commands) => byId("commands").replaceChildren(commandList(commands)));
  for (const [command, button] of Object.entries(buttons)) {
    const disabled = !overview.commands.includes(command);
    if (button.disabled !== disabled) button.disabled = disabled;
    button.classList.toggle("primary", !disabled && overview.next?.command === command);
  }
  forReport.hidden = !isKnown(overview.started);
  showTiles(overview);
  showCharts(progress);
  table.show(overview.namespaces > 0);
}

function showNext(next) {
  const element = byId("next");
  element.hidden = next === null;
  if (next === null) return;
  const command = next.command ? [showCommand(api, next)] : [];
  element.replaceChildren(el("p", { text: `Next: ${next.text}` }), ...command);
}

function showTiles(overview) {
  const { progress, started, ended } = overview;
  const amounts = progress.gen0Stats ?? progress.generationStats;
  const begun = isKnown(started);
  const share = !begun ? 0 : progress.gen0Stats ? 100 : percent(amounts.docsCompared, amounts.totalDocs);
  tiles.compared.show({
    value: begun && isKnown(share) ? `${share} %` : NONE,
    unit: begun ? brief(amounts.docsCompared) : "not started",
    share,
    rows: [
      ["Size", bytes(amounts.srcBytesCompared)], ["Rate", isKnown(progress.docsComparedPerSecond) ? `${rate(progress.docsComparedPerSecond)} documents/s` : NONE],
      ["Began", begun ? clock(started) : NONE], [isKnown(ended) ? "Took" : "Time left", isKnown(ended) ? duration(ended - started) : duration(overview.secondsLeft)],
    ],
  });
  const { verificationStatus: tasks } = progress;
  tiles.rechecks.show({
    value: brief(progress.totalRechecksDone), unit: "documents",
    rows: [["Generation", count(progress.generation)], ["Tasks done", `${count(tasks.completedTasks + tasks.failedTasks)} of ${count(tasks.totalTasks)}`], ["Writes ended", progress.writesOff ? "yes" : "no"]],
  });
  const { srcChangeStats: source, dstChangeStats: destination } = progress;
  const lag = (side) => (isKnown(side.lagSecs) ? duration(side.lagSecs) : NONE);
  tiles.changes.show({
    value: lag(source), unit: isKnown(source.lagSecs) ? "behind the source" : "lag not known",
    rows: [["Source events/s", rate(source.eventsPerSecond)], ["Destination lag", lag(destination)], ["Destination events/s", rate(destination.eventsPerSecond)]],
  });
  const different = overview.differentDocuments + overview.differentDefinitions;
  tiles.differences.show({
    value: begun ? count(different) : NONE, unit: !begun ? "not started" : progress.verdict ? "at the end" : "now",
    rows: [["Documents", count(overview.differentDocuments)], ["Definitions and counts", count(overview.differentDefinitions)]],
    note: progress.notes.join(" "),
  });
  tiles.differences.mark(different ? "bad" : "good", different ? "DIFFERENT" : progress.verdict === "passed" ? "PASSED" : null);
}

function showCharts(progress) {
  const { srcChangeStats: source, dstChangeStats: destination } = progress;
  rows = [...rows, [Date.now() / 1000, progress.docsComparedPerSecond, progress.srcBytesComparedPerSecond, source.lagSecs, destination.lagSecs]].slice(-MOST_ROWS);
  for (const chart of charts) chart.update(COLUMNS, rows, 300);
}

function cells(row) {
  const share = row.tasks && row.tasksDone >= row.tasks ? 100 : percent(row.comparedDocuments, row.totalDocuments) ?? 0;
  const facts = [
    ["Documents compared", count(row.comparedDocuments)], ["Size compared", bytes(row.comparedBytes)],
    ["Tasks done", `${count(row.tasksDone)} of ${count(row.tasks)}`], ["Documents that differ", count(row.mismatches)],
  ];
  return [
    nameCell(row.namespace, () => openDifferences(api, row.namespace, facts, ["/api/v1/nsMismatches", "/api/v1/docMismatches"])),
    shareCell("", share),
    cell("number optional", count(row.totalDocuments ?? row.comparedDocuments)),
    cell("number optional", bytes(row.totalBytes ?? row.comparedBytes)),
    cell("number optional extra", `${count(row.tasksDone)} of ${count(row.tasks)}`),
    cell(`number${row.mismatches ? " differs" : ""}`, count(row.mismatches)),
  ];
}

async function run(command, body) {
  try {
    return await api.send(`/api/v1/${command}`, body);
  } finally {
    refresh();
  }
}

function checkDialog() {
  const filter = el("textarea", { name: "filter", spellcheck: "false", placeholder: '{"region": "eu"}' });
  open("Start a check?", [
    el("p", { text: "The verifier compares the documents, collections, views and indexes that its options select. A new check replaces the result and the report of the last one." }),
    field("Only documents that match this filter (JSON)", filter, "Leave it empty to compare all documents that the options select. After a sync with documentFilter or namespaceRemap, send POST /api/v1/check with the same list instead."),
  ], [{
    text: "Start",
    kind: "primary",
    run: () => run("check", `{"filter": ${typedObject(filter.value)}}`),
  }]);
}

function endDialog() {
  open("End the check?", [
    el("p", { text: "If a sync is running, first wait until it is COMMITTED." }),
    el("p", {}, el("b", { text: "No application may write to either cluster any more." }), " The check compares the last changes, and gives its verdict."),
  ], [{ text: "End the check", kind: "primary", run: () => run("writesOff", {}) }]);
}
