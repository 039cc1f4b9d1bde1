// The buttons of the page, and the dialogs in which commands are confirmed.

import { withTyped } from "./api.js";
import { field, open } from "./dialog.js";
import { factList } from "./differences.js";
import { bytes, count, duration, el } from "./dom.js";
import { reportLink } from "./report.js";

const CLUSTERS = ["cluster0", "cluster1"];
const MOST_NAMES = 50;
const path = (command) => `/api/v1/${command}`;

/** Return the buttons, and a method `show` that enables the buttons which the current state allows. */
export function actionsOf(api, changed, limits) {
  let overview = null;
  const run = async (command, body = {}) => {
    try {
      return await api.send(path(command), body);
    } finally {
      changed();
    }
  };
  const dialogs = {
    start: () => startDialog(run),
    pause: () => confirm("Pause the sync?", "The sync stops at a saved point, and the destination falls behind. Keep the daemon running until you resume the sync.", "Pause", "pause", toAll(overview, "pause")),
    resume: () => confirm("Resume the sync?", "The sync continues from its last saved point.", "Resume", "resume", [...advice(overview), ...toAll(overview, "resume", "every instance that is PAUSED or FAILED")]),
    commit: () => commitDialog(run, overview),
    reverse: () => confirm("Reverse the sync?", "Changes then flow from the current destination back to the old source, where users cannot write.", "Reverse", "reverse", toAll(overview, "reverse")),
    repair: () => repairDialog(run, overview),
    reset: () => resetDialog(run, overview),
  };
  const texts = { start: "Preflight and start", pause: "Pause", resume: "Resume", commit: "Commit", reverse: "Reverse", repair: "Repair", reset: "Reset" };
  const buttons = Object.entries(texts).map(([command, text]) =>
    el("button", { type: "button", text, "data-command": command, disabled: true, on: { click: dialogs[command] } }),
  );
  const forReport = reportLink(api, "syncsvc-report.html");
  const forLimits = el("button", { type: "button", text: "Limits", hidden: true, "data-command": "limits", on: { click: () => limits.open() } });

  function confirm(title, text, action, command, more = []) {
    open(title, [el("p", { text }), ...more], [{ text: action, kind: "primary", run: () => run(command) }]);
  }

  return {
    buttons: [...buttons, forLimits, forReport],
    show(newest) {
      overview = newest;
      for (const button of buttons) {
        const { command } = button.dataset;
        const disabled = !newest.commands.includes(command);
        // Only on a change: a disabled button loses the focus.
        if (button.disabled !== disabled) button.disabled = disabled;
        button.classList.toggle("primary", !disabled && newest.next?.command === command);
      }
      forLimits.hidden = !limits.known;
      forReport.hidden = !newest.destination;
    },
  };
}

function select(name, options) {
  return el("select", { name }, ...options.map(([value, text]) => el("option", { value, text: text ?? value })));
}

function startDialog(run) {
  const source = select("source", CLUSTERS.map((each) => [each]));
  const destination = select("destination", [...CLUSTERS].reverse().map((each) => [each]));
  const indexes = select("buildIndexes", [
    ["beforeDataCopy", "before the copy"], ["afterDataCopy", "after the copy"], ["excludeHashed", "before the copy, no hashed"],
    ["excludeHashedAfterCopy", "after the copy, no hashed"], ["never", "never"],
  ]);
  const blocking = select("enableUserWriteBlocking", [
    ["destinationOnly", "destination only"], ["sourceAndDestination", "source and destination"], ["none", "none"],
  ]);
  const reversible = el("input", { type: "checkbox", name: "reversible" });
  const verification = el("input", { type: "checkbox", name: "verification", checked: true });
  const more = el("textarea", { name: "more", spellcheck: "false", placeholder: '{"includeNamespaces": [{"database": "shop"}]}' });
  const findings = el("div", { class: "dialog-body", role: "status" });
  const body = () => {
    const own = {
      source: source.value, destination: destination.value, buildIndexes: indexes.value,
      enableUserWriteBlocking: blocking.value, reversible: reversible.checked, verification: { enabled: verification.checked },
    };
    return withTyped(own, more.value);
  };
  open(
    "Start a sync",
    [
      el("div", { class: "fields" }, field("Source", source), field("Destination", destination), field("Build indexes", indexes), field("Block user writes", blocking)),
      el("label", { class: "check" }, verification, "Verify the copy before the commit"),
      el("label", { class: "check" }, reversible, "Reversible after the commit"),
      field("More options (JSON)", more, "Any option of POST /api/v1/start, such as filters and sharding. If several instances share the sync, start each on its own page, with the same options."),
      findings,
    ],
    [
      { text: "Preflight", run: async () => { findings.replaceChildren(...preflight(await run("preflight", body()))); return false; } },
      { text: "Start", kind: "primary", run: () => run("start", body()) },
    ],
    { wide: true },
  );
}

function preflight({ violations, warnings, missingFeatures = [], estimates, usersAndRoles }) {
  const items = [
    ...violations.map((each) => el("li", { class: "bad" }, el("b", { text: `${each.error}: ` }), each.errorDescription)),
    ...warnings.map((text) => el("li", { text })),
    ...missingFeatures.map((each) => el("li", {}, el("b", { text: `Missing: ${each.feature} on ${each.cluster}: ` }), each.effect)),
  ];
  if (!violations.length) items.unshift(el("li", { class: "good", text: "A start would succeed now." }));
  const facts = [
    ["Collections and views", count(estimates.namespaces)], ["Documents", count(estimates.documents)], ["Size", bytes(estimates.bytes)],
    ["Indexes", count(estimates.indexes)], ["Disk needed", bytes(estimates.diskNeededBytes)], ["Disk free", bytes(estimates.diskFreeBytes)],
    ["Copy takes about", duration(estimates.copySeconds)], ["Oplog keeps", duration(estimates.oplogWindowSeconds)],
    ...principals(usersAndRoles),
  ];
  return [
    el("h3", { text: "Preflight" }), el("ul", { class: "findings" }, ...items),
    factList(facts),
  ];
}

function principals(found) {
  if (!found) return [];
  return [
    ["Users to copy", count(found.users)], ["Roles to copy", count(found.roles)], ["Users and roles, equal", count(found.equal)],
    ["Different, left unchanged", count(found.kept)], ["Prevent the start and the commit", count(found.conflicts)],
  ];
}

/** Return the input for the name of the destination, and a function that throws unless it was typed. */
function nameField(destination) {
  const input = el("input", { name: "confirm", autocomplete: "off", spellcheck: "false", required: true });
  const check = () => {
    if (input.value.trim() !== destination) throw new Error(`Type the name of the destination: ${destination}.`);
  };
  return [field(`Type ${destination} to confirm`, input), check];
}

// With several instances, a command takes effect when all of them have received it.
function toAll({ instances }, command, which = "every instance") {
  return instances.length ? [el("p", { text: `Several instances share this sync: send the ${command} to ${which}, on its own page.` })] : [];
}

function commitDialog(run, overview) {
  const { destination, progress } = overview;
  const where = progress.directionMapping?.Destination ?? destination;
  const checks = overview.verification ? " and verifies both clusters" : ", but compares nothing, because the verification is disabled";
  const [name, check] = nameField(destination);
  open(
    "Commit the sync?",
    [
      el("p", { text: `The commit applies the last changes${checks}. When the page says so, and not before, applications may write to ${where}.` }),
      el("p", {}, el("b", { text: "Stop the applications that write to the source first." }), " Later writes to the source are lost, unless the sync blocks them."),
      ...toAll(overview, "commit"), name,
    ],
    [{ text: "Commit", kind: "danger", run: () => { check(); return run("commit"); } }],
  );
}

function resetDialog(run, overview) {
  const { destination, progress } = overview;
  const where = progress.directionMapping?.Destination ?? destination;
  const plan = el("div", { class: "dialog-body", role: "status" }, el("p", { class: "empty", text: "Reading what a reset would drop." }));
  const [name, check] = nameField(destination);
  open(
    "Reset the sync?",
    [
      el("p", {}, el("b", { text: `WARNING: this deletes the data that the sync has written to ${where}.` }), " The sync ends, and cannot be continued."),
      ...toAll(overview, "reset", `every instance (first to the coordinator ${progress.coordinatorID})`), plan, name,
    ],
    [{ text: "Reset", kind: "danger", run: () => { check(); return run("reset", { confirm: destination }); } }],
    { wide: true },
  );
  run("reset", { confirm: destination, dryRun: true }).then(
    (answer) => plan.replaceChildren(...resetPlan(answer)),
    (error) => plan.replaceChildren(el("p", { class: "problem", text: error.message })),
  );
}

function resetPlan({ collections, views, usersAndRoles = [], kept, unblocked, balancersStarted }) {
  const items = [
    ["Drops the collections", collections], ["Drops the views", views],
    ["Drops the users and roles", usersAndRoles], ["Keeps, because the sync did not create them", kept],
    ["Unblocks the users of", unblocked], ["Starts the balancer of", balancersStarted],
  ];
  const found = items.filter(([, names]) => names.length);
  if (!found.length) return [el("p", { class: "empty", text: "There is nothing to drop." })];
  return [el("ul", { class: "findings" }, ...found.map(([text, names]) => el("li", {}, el("b", { text: `${text}: ` }), enumerated(names))))];
}

function enumerated(names) {
  const more = names.length - MOST_NAMES;
  return names.slice(0, MOST_NAMES).join(", ") + (more > 0 ? ` and ${count(more)} more` : "");
}

// After a failure, the next step says where the applications belong, and what must be done before the command.
function advice({ progress, next }) {
  return progress.state === "FAILED" && next ? [el("p", { text: next.text })] : [];
}

// While the sync runs, only the coordinator accepts a repair.
function toFailed(overview) {
  return overview.progress.state === "FAILED" ? toAll(overview, "repair", "every instance that is FAILED") : [];
}

function repairDialog(run, overview) {
  const plan = el("div", { class: "dialog-body", role: "status" });
  open(
    "Repair differences?",
    [el("p", { text: "The sync repairs the differences that it knows: it writes differing documents again, deletes documents that the source does not have, and restores definitions. The plan says which differences you must remove yourself." }), ...advice(overview), ...toFailed(overview), plan],
    [
      { text: "Show the plan", run: async () => { plan.replaceChildren(...planned(await run("repair", { dryRun: true }))); return false; } },
      { text: "Repair", kind: "primary", run: () => run("repair") },
    ],
    { wide: true },
  );
}

function planned({ documents, definitions, repairs }) {
  const listed = documents + definitions > repairs.length ? ` The first ${count(repairs.length)} differences are:` : "";
  const head = `${amount(documents, "document", "documents")} and ${amount(definitions, "definition or count", "definitions or counts")} differ.${listed}`;
  const items = repairs.map((each) => el("li", {}, el("b", { text: `${each.action}: ` }), each.difference));
  return [el("p", { text: head }), el("ul", { class: "findings" }, ...items)];
}

function amount(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
