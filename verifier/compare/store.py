"""What is saved of a check, in a database of its own, so that a killed process goes on where it was.

One record of the check; for each generation its tasks, the documents to look at again in it, and what it found.
Everything is saved with majority before it is relied on. A process that takes a check over puts its own name into
the record; a save that names another owner matches none, and the process that tried it stops.

Rechecks and mismatches are known by a digest of the document's key, so saving one twice is saving it once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

import pymongo
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure, PyMongoError

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.newest import read_newest
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check_progress import MismatchCounts
from verifier.compare.errors import METADATA_BLOCKED, MISMATCHES_REPLACED, SUPERSEDED
from verifier.compare.mismatch import (
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    StoredMismatch,
)
from verifier.compare.record import FORMATS, CheckRecord, Side, as_document, from_document
from verifier.compare.rows import (
    definition_mismatch_row,
    document_mismatch_row,
    read_definition_mismatch,
    read_document_mismatch,
    read_namespace,
    read_page_token,
    read_recheck,
    read_task,
    recheck_id,
    recheck_row,
    stored,
    task_row,
)
from verifier.compare.task import Recheck, RecheckId, Task, whole_collection
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

T = TypeVar("T")

# The collection of the record of the check, and its `_id`.
CHECK = "check"
_TASKS, _RECHECKS = "tasks", "rechecks"
_DOCUMENTS, _DEFINITIONS = "documentMismatches", "definitionMismatches"
_OF_A_GENERATION = (_TASKS, _RECHECKS, _DOCUMENTS, _DEFINITIONS)

_DROPPED = (failures.NAMESPACE_NOT_FOUND, failures.COLLECTION_UUID_MISMATCH)

# What one insert carries: a message of the server holds 48 MB, a command 100,000 documents.
_MOST_DOCUMENTS = 5_000
_MOST_BYTES = 8 << 20


class CheckStore:
    """The saved state of one check: changes are saved first, then seen in `record`.

    `writer` writes to the cluster that `client` reads. Raises the driver's errors, of which the transient ones are
    waited out; for those who only read, and have a `patience` in seconds, no call takes longer than that.
    """

    def __init__(
        self,
        client: Client,
        writer: ClusterWriter,
        database: str,
        stop: StopToken,
        patience: float | None = None,
    ) -> None:
        self._database = client[database]
        self._writer = writer
        self._stop = stop
        self._patience = patience
        self._lock = threading.Lock()  # one save of the record at a time; guards the change of it
        self._record: CheckRecord | None = None

    @property
    def record(self) -> CheckRecord:
        assert self._record is not None
        return self._record

    def load(self) -> CheckRecord | None:
        """The saved check. Raises OperationError IncompatibleMetadata."""
        document = self._ask(self._read_record)
        self._record = None if document is None else from_document(document)
        return self._record

    def _read_record(self) -> dict[str, Any] | None:
        if self._patience is not None:
            # For readers only, who must not wait for a majority, and may see an older record.
            return self._database[CHECK].find_one(CHECK)
        return read_newest(self._database.client, self._database.name, CHECK, CHECK)

    def begin(self, record: CheckRecord) -> None:
        """Save a new check in the place of an older one, of which nothing is kept."""
        document = self._database[CHECK].find_one(CHECK)
        if document is not None:
            FORMATS.check(document)
        self.forget()
        self._drop(self._generations())
        new = replace(record, owner=_new_owner())
        self._run({"insert": CHECK, "documents": [{"_id": CHECK, **as_document(new)}]})
        self._record = new

    def take_over(self) -> None:
        """Go on with the loaded check. Raises OperationError Superseded when another process did so first."""
        self.update(owner=_new_owner())

    def forget(self) -> None:
        """Have no check any more. What it has found goes when the next one begins."""
        self._run({"delete": CHECK, "deletes": [{"q": {"_id": CHECK}, "limit": 1}]})

    def clean(self) -> None:
        """Forget every check."""
        self._run({"dropDatabase": 1})
        self._record = None

    def update(self, **changes: Any) -> CheckRecord:
        """Save the record with these fields changed. Raises OperationError Superseded."""
        return self._change(lambda record: replace(record, **changes))

    def update_side(self, side: Side, **changes: Any) -> CheckRecord:
        """The same of what is known of one cluster."""

        def change(record: CheckRecord) -> CheckRecord:
            changed = replace(record.side(side), **changes)
            if side is Side.SOURCE:
                return replace(record, source=changed)
            return replace(record, destination=changed)

        return self._change(change)

    def set_ends(self, source: Timestamp, destination: Timestamp) -> CheckRecord:
        """Save up to which times users write to the two clusters."""

        def changed(record: CheckRecord) -> CheckRecord:
            return replace(
                record,
                source=replace(record.source, end=source),
                destination=replace(record.destination, end=destination),
            )

        return self._change(changed)

    def add_note(self, text: str) -> None:
        """Save, once, what was not compared and why."""

        def changed(record: CheckRecord) -> CheckRecord:
            return replace(record, notes=tuple(dict.fromkeys((*record.notes, text))))

        self._change(changed)

    def _change(self, change: Callable[[CheckRecord], CheckRecord]) -> CheckRecord:
        with self._lock:
            new = change(self.record)
            owners = [self.record.owner, new.owner]
            statement = {"q": {"_id": CHECK, "owner": {"$in": owners}}, "u": as_document(new)}
            if self._run({"update": CHECK, "updates": [statement]})["n"] != 1:
                raise OperationError(SUPERSEDED, "The saved check belongs to another process now.")
            self._record = new
            return new

    def add_tasks(self, tasks: Iterable[Task]) -> None:
        self._insert(self._name(_TASKS), map(task_row, tasks))

    def tasks(self, generation: int | None = None) -> list[Task]:
        """The tasks of the current generation, or another, in the order of their numbers."""
        return [read_task(row) for row in self._find(self._name(_TASKS, generation), {})]

    def save_tasks(self, tasks: Iterable[Task]) -> None:
        statements = [
            {"q": {"_id": task.number}, "u": task_row(task), "upsert": True} for task in tasks
        ]
        self._run({"update": self._name(_TASKS), "updates": statements})

    def remove_task(self, task: Task) -> None:
        statement = {"q": {"_id": task.number}, "limit": 1}
        self._run({"delete": self._name(_TASKS), "deletes": [statement]})

    def add_rechecks(self, generation: int, rechecks: Iterable[Recheck]) -> None:
        self._insert(self._name(_RECHECKS, generation), map(recheck_row, rechecks))

    def rechecks(
        self, first: RecheckId | None = None, last: RecheckId | None = None
    ) -> Iterator[Recheck]:
        """What the current generation looks at again, all or from one to another, in order."""
        bounds: Document = {}
        if first is not None and last is not None:
            bounds = {"_id": {"$gte": recheck_id(first), "$lte": recheck_id(last)}}
        yield from map(read_recheck, self._find(self._name(_RECHECKS), bounds))

    def whole_collections(self, among: Iterable[Namespace]) -> set[Namespace]:
        """Those of the collections that the current generation compares anew."""
        # By their ids: of all there is to look at again, hardly any is a whole collection.
        ids = [recheck_id(whole_collection(each).id) for each in among]
        rows = self._find(self._name(_RECHECKS), {"_id": {"$in": ids}})
        return {read_recheck(row).id.namespace for row in rows}

    def has_rechecks(self, generation: int) -> bool:
        name = self._name(_RECHECKS, generation)
        found = read(self._database[name].find_one, self._stop)
        return found is not None

    def add_document_mismatches(
        self, found: Iterable[DocumentMismatch], since: Mapping[bytes, float], seen: float
    ) -> None:
        """Save mismatches of documents, seen now; `since` has the times of those known before, by digest."""
        rows = (document_mismatch_row(each, since, seen) for each in found)
        self._insert(self._name(_DOCUMENTS), rows)

    def add_definition_mismatches(self, found: Iterable[DefinitionMismatch], seen: float) -> None:
        """Save mismatches of definitions, seen now; those of the generation before are known since then."""
        rows = [definition_mismatch_row(each, seen) for each in found]
        before = self._database[self._name(_DEFINITIONS, self.record.generation - 1)]
        ids = [row["_id"] for row in rows]
        known = read(lambda: list(before.find({"_id": {"$in": ids}})), self._stop)
        first = {str(row["_id"]): row["first"] for row in known}
        for row in rows:
            row["first"] = first.get(str(row["_id"]), seen)
        self._insert(self._name(_DEFINITIONS), rows)

    def document_mismatches(
        self, after: str | None, limit: int | None, least_seconds: float
    ) -> Iterator[StoredMismatch]:
        """What the newest finished generation found, in the order of their page tokens; the only one while it runs.

        Raises OperationError MismatchesReplaced when that generation is dropped while it is read.
        """
        query: Document = {"seconds": {"$gte": least_seconds}} if least_seconds else {}
        generation = self._shown_generation()
        for row in self._page(_DOCUMENTS, generation, query, after, limit):
            yield stored(read_document_mismatch(row), row, generation)

    def definition_mismatches(
        self, after: str | None, limit: int | None
    ) -> Iterator[StoredMismatch]:
        """As `document_mismatches`, of definitions."""
        generation = self._shown_generation()
        for row in self._page(_DEFINITIONS, generation, {}, after, limit):
            yield stored(read_definition_mismatch(row), row, generation)

    def one_sided(self, namespace: Namespace) -> tuple[int, int]:
        """How many documents of a collection the current generation has found missing, and extra."""
        collection = self._database[self._name(_DOCUMENTS)]

        def count(kind: Difference) -> int:
            query = {"_id.n": str(namespace), "type": kind.value}
            return read(lambda: collection.count_documents(query), self._stop)

        return count(Difference.MISSING), count(Difference.EXTRA)

    def mismatch_counts(self) -> MismatchCounts:
        """How many there are of what `document_mismatches` and `definition_mismatches` show."""
        generation = self._shown_generation()
        documents = self._database[self._name(_DOCUMENTS, generation)]
        group = {"$group": {"_id": {"n": "$_id.n", "type": "$type"}, "count": {"$sum": 1}}}
        kinds: dict[Difference, int] = {}
        namespaces: dict[Namespace, int] = {}
        rows = read(lambda: list(documents.aggregate([group])), self._stop)
        for row in rows:
            kind, name = Difference(row["_id"]["type"]), read_namespace(row["_id"]["n"])
            kinds[kind] = kinds.get(kind, 0) + row["count"]
            namespaces[name] = namespaces.get(name, 0) + row["count"]
        definitions = self._database[self._name(_DEFINITIONS, generation)]
        count = read(definitions.estimated_document_count, self._stop)
        return MismatchCounts(kinds, namespaces, count)

    def forget_plan(self) -> None:
        """Drop what a killed process had planned, and found, of the current generation."""
        names = {self._name(each) for each in (_TASKS, _DOCUMENTS, _DEFINITIONS)}
        # Mostly none is there, which a sharded cluster takes its time to find out when it is to drop one.
        self._drop(names.intersection(self._generations()))

    def drop_older(self) -> None:
        """Drop the generations of which nothing is needed."""
        kept = _kept(self.record.generation)
        self._drop(name for name in self._generations() if _number(name) not in kept)

    def _is_kept(self, generation: int) -> bool:
        """Whether the process that carries the check out, be it this one, has not dropped it by now."""
        saved = self._ask(lambda: self._database[CHECK].find_one(CHECK, {"generation": 1}))
        return saved is not None and generation in _kept(saved["generation"])

    def _shown_generation(self) -> int:
        record = self.record
        shown = record.done or record.generation == 0
        return record.generation if shown else record.generation - 1

    def _name(self, what: str, generation: int | None = None) -> str:
        return f"{what}_{self.record.generation if generation is None else generation}"

    def _generations(self) -> list[str]:
        names = read(self._database.list_collection_names, self._stop)
        return [each for each in names if each.partition("_")[0] in _OF_A_GENERATION]

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            for uuid in self._uuids(name):
                try:
                    # By its UUID: a repeated drop must not meet the collection of a later plan.
                    self._run({"drop": name, "collectionUUID": uuid})
                except OperationFailure as error:
                    if error.code not in _DROPPED:
                        raise

    def _uuids(self, name: str) -> list[Any]:
        """Return the UUID of the collection with that name; none if it does not exist."""
        rows = self._ask(lambda: list(self._database.list_collections(filter={"name": name})))
        return [each["info"]["uuid"] for each in rows]

    def _find(self, name: str, query: Document) -> Iterator[Document]:
        """Yield the rows in the order of their `_id`s; after a lost cursor, continue after the last row."""
        after: Any = None

        def portion() -> list[Document]:
            beyond = [] if after is None else [{"_id": {"$gt": after}}]
            found = self._database[name].find({"$and": [query, *beyond]})
            # One batch, so that a lost connection leaves no open cursor. With `batch_size` at the limit, it would.
            found.sort("_id", 1).limit(_MOST_DOCUMENTS).batch_size(_MOST_DOCUMENTS + 1)
            return list(found)

        while rows := self._ask(portion):
            after = rows[-1]["_id"]
            yield from rows

    def _page(
        self, what: str, generation: int, query: Document, after: str | None, limit: int | None
    ) -> Iterator[Document]:
        beyond = [] if after is None else [{"_id": {"$gt": read_page_token(after)}}]
        left = limit
        for row in self._find(self._name(what, generation), {"$and": [query, *beyond]}):
            if left == 0:
                return
            yield row
            left = None if left is None else left - 1
        # Of what is dropped meanwhile, the rest reads as if there were none.
        if not self._is_kept(generation):
            raise OperationError(MISMATCHES_REPLACED, f"Generation {generation} was being read.")

    def _insert(self, name: str, rows: Iterable[Document]) -> None:
        """Add rows, but those that are there already."""
        portion: list[Document] = []
        size = 0
        for row in rows:
            more = 200 + sum(len(each) for each in row.values() if isinstance(each, bytes))
            if len(portion) == _MOST_DOCUMENTS or portion and size + more > _MOST_BYTES:
                self._insert_portion(name, portion)
                portion, size = [], 0
            portion.append(row)
            size += more
        if portion:
            self._insert_portion(name, portion)

    def _insert_portion(self, name: str, rows: list[Document]) -> None:
        reply = self._run({"insert": name, "documents": rows, "ordered": False})
        errors = reply.get("writeErrors", [])
        if any(each["code"] != failures.DUPLICATE_KEY for each in errors):
            raise RuntimeError(f"the state cannot be saved: {errors[:3]}")

    def _ask(self, call: Callable[[], T]) -> T:
        if self._patience is None:
            return read(call, self._stop)
        try:
            with pymongo.timeout(self._patience):
                return retry(call, failures.only_lost_cursor, self._stop)
        except PyMongoError as error:
            if not error.timeout:
                raise
            raise OperationError(
                failures.CLUSTER_UNREACHABLE, f"{failures.text_of(error)}."
            ) from error

    def _run(self, command: Mapping[str, Any]) -> Document:
        try:
            reply = self._writer.run(self._database.name, dict(command))
        except OperationFailure as error:
            if error.code == failures.USER_WRITES_BLOCKED:
                raise self._blocked() from error
            raise
        if any(
            each["code"] == failures.USER_WRITES_BLOCKED for each in reply.get("writeErrors", ())
        ):
            raise self._blocked()
        return reply

    def _blocked(self) -> OperationError:
        return OperationError(
            METADATA_BLOCKED, f"The state cannot be saved in the database {self._database.name}."
        )


def _new_owner() -> str:
    return uuid4().hex


def _kept(generation: int) -> range:
    """That generation, the next and the one before."""
    return range(generation - 1, generation + 2)


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])
