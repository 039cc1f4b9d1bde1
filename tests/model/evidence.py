"""Saves the evidence of a failed run: the operations that were sent to the source, and the source's oplog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bson import Timestamp
from bson.json_util import RELAXED_JSON_OPTIONS, dumps

from syncsvc.sandbox.document_merge import LENIENT
from tests.model.operation import Document
from tests.model.run import Run
from tests.model.values import PAD
from tests.model.writers import Entry
from tests.support.pair import Pair


def keep(run: Run, pair: Pair, folder: Path) -> str:
    """Write the operations of a run and the source's oplog into files in `folder`; return a summary of the differences.

    Each namespace that differs between the clusters gets a file with its own part of the oplog.
    """
    (folder / "journal").write_text(_lines(map(_journal_line, run.writers.journal)))
    oplog = _oplog_since(run.began, pair)
    (folder / "oplog").write_text(_lines(map(_text, oplog)))
    differences = run.differences()
    namespaces = dict.fromkeys(each.partition(": ")[0] for each in differences if ": " in each)
    for namespace in namespaces:
        (folder / f"oplog {namespace}").write_text(_lines(map(_text, _about(namespace, oplog))))
    return _lines(
        [
            f"Evidence in {folder}: log/syncsvc.log, journal, oplog and parts of it by namespace",
            "The current differences between the clusters (after a failure of the sync, definitions may differ, too):",
            *differences,
        ]
    )


def _oplog_since(began: Timestamp, pair: Pair) -> list[Document]:
    oplog = pair.source.client.local.get_collection("oplog.rs", LENIENT)
    found = oplog.find({"ts": {"$gt": began}, "op": {"$ne": "n"}})
    return [each for entry in found for each in _operations(entry)]


def _about(namespace: str, oplog: list[Document]) -> Iterator[Document]:
    """Yield the oplog entries of the collections that had the name `namespace` at some time.

    Also yield the entries that drop its database.
    """
    database, _, collection = namespace.partition(".")
    names = {namespace, f"{database}.system.buckets.{collection}"}
    uuids = {each["ui"] for each in oplog if "ui" in each and names & _namespaces(each)}
    for each in oplog:
        dropped = each["ns"] == f"{database}.$cmd" and "dropDatabase" in each["o"]
        if dropped or each.get("ui") in uuids or names & _namespaces(each):
            yield each


def _operations(entry: Document) -> Iterator[Document]:
    """Yield the operations in an oplog entry: those of the transaction that it contains, or else the entry itself."""
    inner = entry["o"].get("applyOps") if entry["op"] == "c" else None
    if inner is None:
        yield entry
        return
    for each in inner:
        yield from _operations({"ts": entry["ts"], "in transaction": True, **each})


def _namespaces(entry: Document) -> set[str]:
    if entry["op"] != "c":
        return {entry["ns"]}
    database = entry["ns"].removesuffix(".$cmd")
    action, collection = next(iter(entry["o"].items()))
    if action == "renameCollection":
        return {collection, entry["o"]["to"]}
    return {f"{database}.{collection}"}


def _journal_line(entry: Entry) -> str:
    operation = entry.operation
    commands = ", ".join(map(_text, operation.commands))
    how = "" if operation.end is None else f" in a transaction, {operation.end.value}"
    outcome = "done" if entry.refused is None else f"refused, {entry.refused}"
    who = f"writer {entry.writer} #{entry.number}"
    return f"{entry.time} {who}: {operation.database} {commands}{how}: {outcome}"


def _text(document: Document) -> str:
    return dumps(document, json_options=RELAXED_JSON_OPTIONS).replace(PAD, "p*")


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
