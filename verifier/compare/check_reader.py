"""Reads the saved state of a check: its record, its mismatches and their numbers.

`verifier.compare.store` describes the saved state, and writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import pymongo
from bson.timestamp import Timestamp
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.newest import read_newest, session_after
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.compare.check_progress import LASTING, MismatchCounts
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.mismatch import Difference, StoredMismatch
from verifier.compare.record import CheckRecord, from_document
from verifier.compare.rows import (
    read_definition_mismatch,
    read_document_mismatch,
    read_namespace,
    read_page_token,
    stored,
)
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

T = TypeVar("T")

# The name of the collection with the record of the check, and the `_id` of the record.
CHECK = "check"
# The names of the collections with mismatches, without the number of their generation.
DOCUMENTS, DEFINITIONS = "documentMismatches", "definitionMismatches"

# The maximum number of documents that one query reads.
_MOST_READ = 5_000


class CheckReader:
    """Reads the saved state of one check. Call `load` first.

    Transient errors of the driver are retried; its other errors, and `Cancelled`, are raised. With `patience`, only a
    lost cursor is retried: a query that has no answer within this number of seconds raises OperationError
    ClusterUnreachable, and the record may be older than the newest save.
    """

    def __init__(
        self, client: Client, database: str, stop: StopToken, patience: float | None = None
    ) -> None:
        self._client = client
        self._database = client[database]
        self._stop = stop
        self._patience = patience
        self._record: CheckRecord | None = None
        # A cluster time that is not before any save of this process; None before its first save.
        self._saved_until: Timestamp | None = None

    @property
    def record(self) -> CheckRecord:
        assert self._record is not None
        return self._record

    def load(self) -> CheckRecord | None:
        """Read the record of the saved check, and return it; None if no check is saved.

        Afterwards, the property `record` returns the same record. Raises OperationError IncompatibleMetadata if this
        version cannot read the format of the record.
        """
        document = self._ask(self._read_record)
        self._record = None if document is None else from_document(document)
        return self._record

    def _read_record(self, session: ClientSession) -> dict[str, Any] | None:
        if self._patience is not None:
            # Callers that only read must not wait for a majority, and may see an older record.
            return self._database[CHECK].find_one(CHECK, session=session)
        return read_newest(self._client, self._database.name, CHECK, CHECK)

    def document_mismatches(
        self,
        after: str | None,
        limit: int | None,
        least_seconds: float,
        namespaces: Collection[str] = (),
    ) -> Iterator[StoredMismatch]:
        """Yield the mismatches of documents of the newest finished generation, in the order of their page tokens.

        Begin after the page token `after` (None: at the first mismatch), and yield at most `limit` (None: all). Skip
        documents that have differed for less than `least_seconds`. If `namespaces`, which are names on the source, is
        not empty, yield only their mismatches. Before generation 0 is finished, yield its mismatches so far. Raises
        OperationError MismatchesReplaced if the generation is dropped meanwhile, and ValueError for an invalid token.
        """
        long: Document = {"seconds": {"$gte": least_seconds}} if least_seconds else {}
        query = {"$and": [long, _within(namespaces)]}
        generation = self._shown_generation()
        for row in self._page(DOCUMENTS, generation, query, after, limit):
            yield stored(read_document_mismatch(row), row, generation)

    def definition_mismatches(
        self, after: str | None, limit: int | None, namespaces: Collection[str] = ()
    ) -> Iterator[StoredMismatch]:
        """Yield the mismatches of definitions of the newest finished generation, in the order of their page tokens.

        These include mismatches of the numbers of documents. Begin after the page token `after` (None: at the first
        mismatch), and yield at most `limit` (None: all). If `namespaces` (names on the source) is not empty, yield only
        their mismatches. For errors, see `document_mismatches`.
        """
        generation = self._shown_generation()
        for row in self._page(DEFINITIONS, generation, _within(namespaces), after, limit):
            yield stored(read_definition_mismatch(row), row, generation)

    def one_sided(self, namespace: Namespace) -> tuple[int, int]:
        """Return the numbers of missing and of extra documents that the current generation found in a collection.

        `namespace` is the name of the collection on the source; for a time-series collection, the name of its buckets.
        """
        collection = self._database[self._name(DOCUMENTS)]

        def count(kind: Difference) -> int:
            query = {"_id.n": str(namespace), "type": kind.value}
            return self._ask(lambda session: collection.count_documents(query, session=session))

        return count(Difference.MISSING), count(Difference.EXTRA)

    def mismatch_counts(self) -> MismatchCounts:
        """Return the numbers of mismatches that `document_mismatches` and `definition_mismatches` yield."""
        generation = self._shown_generation()
        documents = self._database[self._name(DOCUMENTS, generation)]
        long = {"$cond": [{"$gte": ["$seconds", LASTING]}, 1, 0]}
        counted = {"count": {"$sum": 1}, "lasting": {"$sum": long}}
        group = {"$group": {"_id": {"n": "$_id.n", "type": "$type"}, **counted}}
        kinds: dict[Difference, int] = {}
        namespaces: dict[Namespace, int] = {}
        rows = self._ask(lambda session: list(documents.aggregate([group], session=session)))
        for row in rows:
            kind, name = Difference(row["_id"]["type"]), read_namespace(row["_id"]["n"])
            kinds[kind] = kinds.get(kind, 0) + row["count"]
            namespaces[name] = namespaces.get(name, 0) + row["count"]
        definitions = self._database[self._name(DEFINITIONS, generation)]
        # Count them one by one: after a crash, the number that the server itself keeps can be wrong.
        count = self._ask(lambda session: definitions.count_documents({}, session=session))
        return MismatchCounts(kinds, namespaces, count, sum(row["lasting"] for row in rows))

    def _is_kept(self, generation: int, started: float) -> bool:
        """Return whether the tasks and mismatches of a generation are still saved. `started` is when its check began.

        They are dropped when the check has moved on to later generations, perhaps in another process that has taken the
        check over, and when a new check begins.
        """
        fields = {"generation": 1, "started": 1}
        check = self._database[CHECK]
        saved = self._ask(lambda session: check.find_one(CHECK, fields, session=session))
        # A new check has the same numbers of generations.
        if saved is None or saved["started"] != started:
            return False
        return generation in kept_generations(saved["generation"])

    def _shown_generation(self) -> int:
        record = self.record
        shown = record.done or record.generation == 0
        return record.generation if shown else record.generation - 1

    def _name(self, what: str, generation: int | None = None) -> str:
        return f"{what}_{self.record.generation if generation is None else generation}"

    def _find(self, name: str, query: Document) -> Iterator[Document]:
        """Yield the documents of the collection `name` that match the query, in the order of their `_id`s.

        Read portions of at most `_MOST_READ` documents; a portion whose read fails temporarily is read again.
        """
        after: Any = None

        def portion(session: ClientSession) -> list[Document]:
            beyond = [] if after is None else [{"_id": {"$gt": after}}]
            found = self._database[name].find({"$and": [query, *beyond]}, session=session)
            # One batch, so that a lost connection leaves no open cursor. With `batch_size` equal to the limit, the
            # server would keep the cursor open.
            found.sort("_id", 1).limit(_MOST_READ).batch_size(_MOST_READ + 1)
            return list(found)

        while rows := self._ask(portion):
            after = rows[-1]["_id"]
            yield from rows

    def _page(
        self, what: str, generation: int, query: Document, after: str | None, limit: int | None
    ) -> Iterator[Document]:
        beyond = [] if after is None else [{"_id": {"$gt": read_page_token(after)}}]
        left = limit
        started = self.record.started
        for row in self._find(self._name(what, generation), {"$and": [query, *beyond]}):
            if left == 0:
                return
            yield row
            left = None if left is None else left - 1
        # If the collection was dropped meanwhile, the read ends early without an error: check that it still exists.
        if not self._is_kept(generation, started):
            raise OperationError(
                MISMATCHES_REPLACED,
                f"Generation {generation} of the check was replaced by a newer one or by a new check, or was deleted, "
                "while its mismatches were read.",
            )

    def _ask(self, call: Callable[[ClientSession], T]) -> T:
        """Call `call` with a session in which every read sees all saves of this process, and return its result.

        In another session, a newly elected primary could return an older state: rechecks would be left out, and their
        documents would not be compared.
        """

        def ask() -> T:
            with session_after(self._client, self._saved_until) as session:
                return call(session)

        if self._patience is None:
            return read(ask, self._stop)
        try:
            with pymongo.timeout(self._patience):
                return retry(ask, failures.only_lost_cursor, self._stop)
        except PyMongoError as error:
            if not error.timeout:
                raise
            raise OperationError(
                failures.CLUSTER_UNREACHABLE, f"{failures.text_of(error)}."
            ) from error


def _within(namespaces: Collection[str]) -> Document:
    """Return a query for the saved mismatches of these namespaces; for all mismatches if `namespaces` is empty.

    The query consists of ranges of `_id`, so that it uses the index.
    """
    ranges = [
        # In the order of BSON, {"n": name} comes before all rows of the namespace, which have more fields.
        {"_id": {"$gte": {"n": name}, "$lt": {"n": f"{name}\0"}}}
        for name in namespaces
    ]
    return {"$or": ranges} if ranges else {}


def kept_generations(generation: int) -> range:
    """Return the generations whose saved state is kept while `generation` is current: from the previous to the next."""
    return range(generation - 1, generation + 2)
