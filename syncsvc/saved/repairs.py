"""Saves the list of repairs: the differences that a sync has repaired or will repair, each with its repair round.

The list of a round is saved before any instance begins the round. So all instances repair the same differences, even
after a restart. If a difference occurs again in a later round, it is listed only for the later round; if it is removed
from the list of that round, it is listed for its first round again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pymongo

from syncsvc.metadata import Metadata
from syncsvc.saved.rows import Rows
from verifier.cluster import rawbson
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.compare.mismatch import (
    DefinitionMismatch,
    DocumentMismatch,
    Mismatch,
    StoredMismatch,
)
from verifier.compare.rows import (
    definition_mismatch_row,
    document_mismatch_row,
    is_of_definition,
    read_definition_mismatch,
    read_document_mismatch,
    read_page_token,
    stored,
)
from verifier.runtime.tasks import StopToken

# The metadata collection with the list of repairs.
REPAIRS = "repairs"
# How many rows are read at once.
_PAGE = 1_000


class RepairCounts(NamedTuple):
    """The numbers of documents and of differences in definitions in the list of repairs."""

    documents: int = 0
    definitions: int = 0


class Repairs:
    """The saved list of repairs of one run. Every method raises the errors of `Rows`."""

    def __init__(self, metadata: Metadata, writer: ClusterWriter, stop: StopToken) -> None:
        self._rows = Rows(metadata, writer, REPAIRS, stop)

    def add(self, number: int, found: Iterable[StoredMismatch]) -> None:
        """Add the differences `found` to the list of the repair round `number`."""
        self._rows.save(_statement(_row(each, number)) for each in found)

    def remove_all(self, number: int) -> None:
        """Remove all differences from the list of the round `number`, which must not have begun."""
        self._remove({"round": number})

    def remove(self, number: int, found: Iterable[DefinitionMismatch]) -> None:
        """Remove differences in definitions from the list of the round `number`, because they could not be repaired."""
        ids = [definition_mismatch_row(each, 0)["_id"] for each in found]
        self._remove({"round": number, "_id": {"$in": ids}})

    def remove_documents(self, number: int, namespaces: Iterable[Namespace]) -> None:
        """Remove the documents of these collections from the list of the round `number`.

        These documents could not be repaired.
        """
        names = [str(each) for each in namespaces]
        self._remove({"round": number, "_id.n": {"$in": names}, "_id.h": {"$exists": True}})

    def _remove(self, query: dict[str, Any]) -> None:
        """Remove the rows that match the query from the list of their round, `query["round"]`."""
        again = {**query, "firstRound": {"$lt": query["round"]}}
        self._rows.save(
            {"q": {"_id": row["_id"]}, "u": [{"$set": {"round": "$firstRound"}}]}
            for row in self._newest(again)
        )
        self._rows.delete_all(query)

    def documents(self, number: int) -> Iterator[DocumentMismatch]:
        """Yield the differing documents that the repair round `number` repairs."""
        for row in self._newest({"round": number, "_id.h": {"$exists": True}}):
            yield read_document_mismatch(row)

    def definitions(self, number: int) -> list[DefinitionMismatch]:
        """Return the differences in definitions that the repair round `number` repairs."""
        query = {"round": number, "_id.a": {"$exists": True}}
        return [read_definition_mismatch(row) for row in self._newest(query)]

    def counts(self) -> RepairCounts:
        collection = self._rows.metadata[REPAIRS]

        def count(field: str) -> int:
            query = {field: {"$exists": True}}
            return read(lambda: collection.count_documents(query), self._rows.stop)

        return RepairCounts(count("_id.h"), count("_id.a"))

    def forget(self) -> None:
        """Delete the saved list of repairs."""
        self._rows.delete_all({})

    def _newest(self, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows that match the query, in `_id` order, including all rows saved before the iteration begins."""
        time = self._rows.newest_time()

        def portion(after: list[dict[str, Any]]) -> list[bytes]:
            find = {"filter": {"$and": [query, *after]}, "sort": {"_id": 1}, "limit": _PAGE}
            return self._rows.at(time, **find)

        yield from _pages(portion)


def _pages(
    portion: Callable[[list[dict[str, Any]]], list[bytes]],
) -> Iterator[dict[str, Any]]:
    after: list[dict[str, Any]] = []
    while rows := [rawbson.decode(each) for each in portion(after)]:
        yield from rows
        after = [{"_id": {"$gt": rows[-1]["_id"]}}]


def listed(
    metadata: Metadata, after: str | None, limit: int | None, patience: float
) -> Iterator[StoredMismatch]:
    """Yield the differences in the list of repairs: at most `limit` of them, or all if `limit` is None.

    `after` is the page token of the last difference already read; None to begin with the first. Each page of the list
    is read within `patience` seconds. Raises the driver's errors, and ValueError for an invalid page token.
    """
    collection = metadata[REPAIRS]
    last = None if after is None else read_page_token(after)
    left = limit
    while left is None or left > 0:
        query = {} if last is None else {"_id": {"$gt": last}}
        with pymongo.timeout(patience):
            rows = list(collection.find(query, sort={"_id": 1}, limit=min(_PAGE, left or _PAGE)))
        for row in rows:
            yield stored(_mismatch(row), row, row["generation"])
        if not rows:
            return
        last = rows[-1]["_id"]
        left = None if left is None else left - len(rows)


def _mismatch(row: dict[str, Any]) -> Mismatch:
    if is_of_definition(row["_id"]):
        return read_definition_mismatch(row)
    return read_document_mismatch(row)


def _row(each: StoredMismatch, number: int) -> dict[str, Any]:
    mismatch = each.mismatch
    if isinstance(mismatch, DefinitionMismatch):
        row = definition_mismatch_row(mismatch, each.last_seen)
    else:
        row = document_mismatch_row(mismatch, {}, each.last_seen)
    return {**row, "first": each.first_seen, "generation": each.generation, "round": number}


def _statement(row: dict[str, Any]) -> dict[str, Any]:
    """Return the update statement that saves this row, and keeps the number of the first round of an earlier row."""
    first_round = {"firstRound": {"$ifNull": ["$firstRound", row["round"]]}}
    new = {"$replaceWith": {"$mergeObjects": [{"$literal": row}, first_round]}}
    return {"q": {"_id": row["_id"]}, "u": [new], "upsert": True}
