// The tiles: the copy, change events, the oplog, and the verification.

import { brief, bytes, clock, count, duration, isKnown, NONE, percent, rate } from "./dom.js";
import { Tile } from "./tile.js";

const LEVELS = { green: ["good", "SAFE"], amber: ["warn", "SHORT"], red: ["bad", "TOO SHORT"], unknown: ["quiet", "UNKNOWN"] };

/** Add the tiles to `parent`; returns an object whose method `show` fills them. */
export function tiles(parent) {
  const all = {
    copy: new Tile("Copy", true),
    events: new Tile("Change events"),
    oplog: new Tile("Oplog headroom", true),
    verification: new Tile("Verification", true),
  };
  parent.append(...Object.values(all).map((tile) => tile.element));
  return {
    show(overview) {
      showCopy(all.copy, overview);
      showEvents(all.events, overview);
      showOplog(all.oplog, overview);
      showVerification(all.verification, overview);
    },
  };
}

function showCopy(tile, { copy, namespaces, progress }) {
  const total = copy.totalBytes;
  const copied = progress.info && !["initializing collections and indexes", "collection copy"].includes(progress.info);
  // With several instances, only the coordinator knows during the copy what all of them have copied.
  const of = (part, whole) => (copy.byThisInstance ? `${part} by this instance, of ${whole} in all` : `${part} of ${whole}`);
  const share = total === null || copy.byThisInstance ? null : total ? percent(copy.copiedBytes, total) : copied ? 100 : 0;
  const left = range(copy.leastSecondsLeft, copy.mostSecondsLeft);
  const { waiting = 0, copying = 0 } = namespaces.phases;
  tile.show({
    value: share === null ? NONE : `${share} %`,
    unit: total === null ? "" : of(bytes(copy.copiedBytes), bytes(total)),
    share,
    rows: [
      ["Documents", isKnown(copy.totalDocuments) ? of(brief(copy.copiedDocuments), brief(copy.totalDocuments)) : NONE],
      ["Collections", namespaces.total ? `${count(namespaces.total - waiting - copying)} of ${count(namespaces.total)}` : NONE],
      ["Rate", isKnown(copy.bytesPerSecond) ? `${bytes(copy.bytesPerSecond)}/s` : NONE],
      ["Documents/s", rate(copy.documentsPerSecond)],
      ["Time left", left],
    ],
  });
  if (share === 100 && copied) tile.mark("good", "DONE");
  else tile.mark("", null);
}

function range(least, most) {
  if (!isKnown(least)) return NONE;
  const [low, high] = [duration(least), duration(most)];
  return low === high ? `about ${low}` : `${low} to ${high}`;
}

function showEvents(tile, { events }) {
  const lag = events.lagSeconds;
  tile.show({
    value: isKnown(lag) ? duration(lag) : NONE,
    unit: isKnown(lag) ? "behind the source" : "lag not known",
    rows: [
      ["Read/s", rate(events.readPerSecond)],
      ["Applied/s", rate(events.appliedPerSecond)],
      ["Writes applied", brief(events.applied)],
      ["DDL applied", count(events.definitionsApplied)],
      ["Caught up in", isKnown(events.catchUpSeconds) ? `about ${duration(events.catchUpSeconds)}` : NONE],
    ],
  });
  if (isKnown(lag)) tile.mark(lag <= 30 ? "good" : "warn", lag <= 30 ? "CLOSE" : "BEHIND");
  else tile.mark("", null);
}

function showOplog(tile, { oplog, progress }) {
  const { level, secondsLeft: left, secondsNeeded: needed } = oplog;
  const spool = progress.eventSpool;
  const used = isKnown(left) && isKnown(needed) ? Math.min(100, Math.round((100 * needed) / Math.max(left, 1))) : null;
  tile.show({
    value: isKnown(left) ? duration(left) : level === "green" ? "Ample" : NONE,
    unit: isKnown(left) ? "kept" : "",
    share: used,
    rows: [
      ["Still needed for", isKnown(needed) ? `about ${duration(needed)}` : NONE],
      ...(spool ? [["Event spool", `${bytes(spool.bytes)} of ${bytes(spool.limitBytes)}`]] : []),
    ],
    note: oplog.text,
  });
  tile.element.className = `card tile ${level}`;
  tile.mark(...LEVELS[level]);
}

// Only the coordinator has the figures of the verification, and a process that was restarted has none at first.
function withoutFigures({ state, info, mongosyncID, coordinatorID }) {
  if (coordinatorID !== mongosyncID) return `see the coordinator ${coordinatorID}`;
  if (state === "RESETTING") return "";
  const mayHaveBegun = state === "PAUSED" && info === "change event application";
  return mayHaveBegun || ["COMMITTING", "COMMITTED", "FAILED"].includes(state) ? "see the report" : "not started";
}

function showVerification(tile, { verification, progress }) {
  if (verification === null) {
    const off = progress.info !== null;
    tile.show({ value: off ? "Off" : NONE, rows: [], note: off ? "The sync was started without verification." : "" });
    tile.mark("", null);
    return;
  }
  const { comparedDocuments: compared, totalDocuments: total, phase, lastClean } = verification;
  const different = verification.differentDocuments + verification.differentDefinitions;
  const begun = phase !== "not started";
  const when = verification.verdict ? "at the end" : "now";
  const share = phase === "stream hashing" ? 100 : total ? percent(compared, total) : null;
  tile.show({
    value: begun ? count(different) : NONE,
    unit: begun ? `${different === 1 ? "difference" : "differences"} ${when}` : withoutFigures(progress),
    share: begun ? share : null,
    rows: [
      ["Compared", begun && isKnown(total) ? `${brief(compared)} of ${brief(total)}` : brief(compared)],
      ["Compared again", brief(verification.recheckedDocuments)],
      ["Definitions", count(verification.differentDefinitions)],
      ["Last clean", isKnown(lastClean) ? clock(lastClean) : NONE],
    ],
    note: verification.notes.join(" "),
  });
  if (different) tile.mark("bad", "DIFFERENT");
  else if (verification.verdict === "passed") tile.mark("good", "PASSED");
  else if (begun && isKnown(lastClean)) tile.mark("good", "CLEAN");
  else tile.mark("", null);
}
