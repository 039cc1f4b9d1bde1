// The table of the collections of a sync.

import { bytes, count, isKnown, NONE, percent } from "./dom.js";
import { openDifferences } from "./differences.js";
import { cell, nameCell, shareCell, Table } from "./table.js";

const PHASES = ["waiting", "copying", "copied", "indexing", "withheld"];
const HEADS = [
  ["Collection", "name", ""], ["Phase", null, ""], ["Copied", "left", ""], ["Documents", "documents", "number optional"],
  ["Size", "bytes", "number optional"], ["Events", "events", "number optional"], ["Indexes", null, "number optional extra"],
  ["Verified", null, "number optional extra"], ["Differences", "mismatches", "number optional extra"],
];
const FALLING = new Set(["left", "documents", "bytes", "events", "mismatches"]);

/** Return the table, which is not shown yet. */
export function namespacesTable(api, toolbar, parent) {
  return new Table({
    api, toolbar, parent, heads: HEADS, falling: FALLING, phases: PHASES, noun: "collection",
    empty: "No collections to show. They are listed when a sync begins to copy them.",
    cells: (row) => cells(api, row),
  });
}

function cells(api, row) {
  const checked = row.verification;
  const verified = checked && isKnown(checked.estimatedTotalDocuments)
    ? `${percent(checked.comparedDocuments, checked.estimatedTotalDocuments)} %` : NONE;
  const differences = checked ? checked.mismatches : 0;
  return [
    nameCell(row.namespace, () => openDifferences(api, row.namespace, facts(row), ["/api/v1/mismatches"])),
    cell("", row.phase),
    shareCell("", copiedShare(row)),
    cell("number optional", count(row.estimatedTotalDocuments)),
    cell("number optional", bytes(row.estimatedTotalBytes)),
    cell("number optional", count(row.eventsApplied)),
    cell("number optional extra", isKnown(row.indexesBuilt) ? `${row.indexesBuilt} of ${row.totalIndexes}` : NONE),
    cell("number optional extra", verified),
    cell(`number optional extra${differences ? " differs" : ""}`, checked ? count(differences) : NONE),
  ];
}

function copiedShare(row) {
  if (row.estimatedTotalBytes) return percent(row.copiedBytes, row.estimatedTotalBytes);
  return row.phase === "waiting" || row.phase === "copying" ? 0 : 100;
}

function facts(row) {
  const checked = row.verification;
  const renamed = row.destinationNamespace ? [["Name on the destination", row.destinationNamespace]] : [];
  return [
    ...renamed, ["Phase", row.phase], ["Documents", `${count(row.copiedDocuments)} of ${count(row.estimatedTotalDocuments)}`],
    ["Size", `${bytes(row.copiedBytes)} of ${bytes(row.estimatedTotalBytes)}`], ["Change events", count(row.eventsApplied)],
    ["Indexes", isKnown(row.indexesBuilt) ? `${row.indexesBuilt} of ${row.totalIndexes}` : NONE],
    ["Compared", checked ? count(checked.comparedDocuments) : NONE],
    ["Documents that differ", checked ? count(checked.mismatches) : NONE],
  ];
}
