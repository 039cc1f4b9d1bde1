"""What is kept of a run that failed: what was asked of the source, and what the source's oplog says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bson import Timestamp
from bson.json_util import RELAXED_JSON_OPTIONS, dumps

from syncsvc.sandbox.document_merge import LENIENT
from tests.conftest import Pair
from tests.model.operation import Document
from tests.model.run import Run
from tests.model.values import PAD
from tests.model.writers import Entry

_MOST_NAMESPACES = 10


def keep(run: Run, pair: Pair, folder: Path) -> str:
    """Write the journal, and the oplog of each namespace that differs, into the folder; what to read first."""
    (folder / "journal").write_text(_lines(map(_journal_line, run.writers.journal)))
    differences = run.differences()
    namespaces = dict.fromkeys(each.partition(": ")[0] for each in differences)
    for namespace in list(namespaces)[:_MOST_NAMESPACES]:
        entries = oplog_of(pair, namespace, run.began)
        (folder / f"oplog {namespace}").write_text(_lines(map(_text, entries)))
    return _lines(
        [
            f"Evidence: {folder}: log/syncsvc.log, journal, {', '.join(f'oplog {n}' for n in namespaces)}",
            "The clusters differ now (where the sync failed, definitions may, too):",
            *differences,
        ]
    )


def oplog_of(pair: Pair, namespace: str, began: Timestamp) -> Iterator[Document]:
    """The entries since then that are about the namespace, or about a collection that had this name at some time."""
    database, _, collection = namespace.partition(".")
    names = {namespace, f"{database}.system.buckets.{collection}"}
    oplog = pair.source.client.local.get_collection("oplog.rs", LENIENT)
    entries = [e for each in oplog.find({"ts": {"$gt": began}}) for e in _operations(each)]
    uuids = {each["ui"] for each in entries if "ui" in each and names & _namespaces(each)}
    for each in entries:
        dropped = each["ns"] == f"{database}.$cmd" and "dropDatabase" in each["o"]
        if dropped or each.get("ui") in uuids or names & _namespaces(each):
            yield each


def _operations(entry: Document) -> Iterator[Document]:
    """The entry itself, or the operations of the transaction that it holds."""
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
