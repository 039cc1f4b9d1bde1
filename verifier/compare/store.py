"""The saved state of a check, in a metadata database, so that a check continues after the process was killed.

The state is one record of the check, the progress of generation 0 and, for the current and the previous generation,
the tasks, rechecks and mismatches. Everything is saved with majority write concern before the check relies on it. A
process that takes a check over writes a new random ID into the record as the owner. The previous owner stops at its
next save of the record, which then matches no document.

The `_id` of a recheck or of a document mismatch contains the namespace and a digest of the document's key (empty in a
recheck of a whole collection); that of a definition mismatch contains the namespace, the aspect and the component. So
saving one a second time is a no-op.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.bounds import one_save
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check_progress import NamespaceProgress
from verifier.compare.check_reader import (
    CHECK,
    DEFINITIONS,
    DOCUMENTS,
    CheckReader,
    kept_generations,
)
from verifier.compare.errors import METADATA_BLOCKED, SUPERSEDED
from verifier.compare.mismatch import DefinitionMismatch, DocumentMismatch
from verifier.compare.record import (
    FORMATS,
    CheckProcess,
    CheckRecord,
    SentCommand,
    Side,
    as_document,
)
from verifier.compare.rows import (
    compared_row,
    definition_mismatch_row,
    document_mismatch_row,
    read_compared,
    read_recheck,
    read_task,
    recheck_id,
    recheck_row,
    task_row,
)
from verifier.compare.task import Recheck, RecheckId, Status, Task, whole_collection
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_TASKS, _RECHECKS = "tasks", "rechecks"
# The progress of generation 0, by namespace.
_COMPARED = "compared"
_OF_A_GENERATION = (_TASKS, _RECHECKS, DOCUMENTS, DEFINITIONS)

# Limits of one insert, well below those of the server: 48 MB per message, 100,000 documents per command.
_MOST_DOCUMENTS = 5_000
_MOST_BYTES = 8 << 20


class CheckStore(CheckReader):
    """The saved state of one check, for the process that runs it. Changes are saved before `record` shows them.

    `writer` writes to the cluster that `client` reads. Transient errors of the driver are retried; its other errors,
    and `Cancelled`, are raised. Every save raises OperationError MetadataBlocked if a write block of the cluster
    applies to this process. In a block of `retry.impatient`, a save of the record raises ClusterUnreachable if it has
    to wait too long for a save in another thread.
    """

    def __init__(
        self, client: Client, writer: ClusterWriter, database: str, stop: StopToken
    ) -> None:
        super().__init__(client, database, stop)
        self._writer = writer
        self._lock = threading.Lock()  # held while the record is saved and replaced
        self._timing = threading.Lock()  # guards changes of _saved_until
        # Notes that are saved with the next change of the record, or before the next tasks.
        self._unsaved_notes: list[str] = []

    def begin(self, record: CheckRecord) -> None:
        """Delete the saved state of an older check, then save a new check with this process as its owner.

        If this version cannot read the older check, change nothing and raise OperationError IncompatibleMetadata.
        """
        document = self._ask(self._read_record)
        if document is not None:
            FORMATS.check(document)
        self.forget()
        self._drop([*self._generations(), _COMPARED])
        new = replace(record, owner=_new_owner())
        command = {"insert": CHECK, "documents": [{"_id": CHECK, **as_document(new)}]}
        # A repeated insert finds its own document. That of another process is found by the next change of the record.
        self._write(command, failures.DUPLICATE_KEY)
        self._unsaved_notes.clear()
        self._record = new

    def take_over(self, process: CheckProcess | None = None) -> None:
        """Save this process as the owner of the loaded check, and add `process`, unless it is None, to the record.

        Raises OperationError Superseded if another process has become the owner since the check was loaded.
        """
        owner = _new_owner()
        self._change(lambda record: replace(record.with_process(process), owner=owner))

    def forget(self) -> None:
        """Delete the record of the check. Its tasks, rechecks and mismatches remain until the next check begins."""
        self._write({"delete": CHECK, "deletes": [{"q": {"_id": CHECK}, "limit": 1}]})

    def clean(self) -> None:
        """Drop the whole database in which the state of the check is saved."""
        self._run({"dropDatabase": 1})
        self._record = None

    def update(self, **changes: Any) -> CheckRecord:
        """Change fields of the check's record, save the record and return it.

        The keyword arguments are the changed fields. Raises OperationError Superseded if another process has taken over
        the check.
        """
        return self._change(lambda record: replace(record, **changes))

    def update_side(self, side: Side, **changes: Any) -> CheckRecord:
        """Change fields of the SideRecord of one cluster, save the check's record and return it.

        The keyword arguments are the changed fields. Raises OperationError Superseded if another process has taken over
        the check.
        """

        def change(record: CheckRecord) -> CheckRecord:
            changed = replace(record.side(side), **changes)
            if side is Side.SOURCE:
                return replace(record, source=changed)
            return replace(record, destination=changed)

        return self._change(change)

    def set_ends(
        self, source: Timestamp, destination: Timestamp, command: SentCommand | None
    ) -> CheckRecord:
        """Save the cluster times at which user writes to the two clusters ended, and the command that declared this.

        `command` is None if no command declared it. Raises OperationError Superseded if another process has taken over
        the check.
        """

        def changed(record: CheckRecord) -> CheckRecord:
            return replace(
                record.with_command(command),
                source=replace(record.source, end=source),
                destination=replace(record.destination, end=destination),
            )

        return self._change(changed)

    def reopen(self) -> CheckRecord:
        """Delete the verdict and the saved cluster times at which user writes ended, and return the new record.

        The check then follows changes again. Raises OperationError Superseded if another process has taken the check
        over.
        """

        def changed(record: CheckRecord) -> CheckRecord:
            return replace(
                record,
                source=replace(record.source, end=None),
                destination=replace(record.destination, end=None),
                last_from=None,
                ended=None,
                verdict=None,
            )

        return self._change(changed)

    def add_note(self, text: str) -> None:
        """Add a note to the record of the check. The note says what was not compared, and why.

        The note is saved with the next change of the record, or before the next tasks are saved. A record keeps only a
        limited number of notes; see `CheckRecord.with_notes`.
        """
        self._unsaved_notes.append(text)

    def _change(self, change: Callable[[CheckRecord], CheckRecord]) -> CheckRecord:
        with one_save(self._lock, "the record of the check"):
            count = len(self._unsaved_notes)
            new = change(self.record).with_notes(self._unsaved_notes[:count])
            owners = [self.record.owner, new.owner]
            statement = {"q": {"_id": CHECK, "owner": {"$in": owners}}, "u": as_document(new)}
            if self._write({"update": CHECK, "updates": [statement]})["n"] != 1:
                raise OperationError(
                    SUPERSEDED,
                    "Another process has taken over the saved check, or its saved state was deleted.",
                )
            self._record = new
            del self._unsaved_notes[:count]
            return new

    def add_tasks(self, tasks: Iterable[Task]) -> None:
        self._insert(self._name(_TASKS), map(task_row, tasks))

    def tasks(self, generation: int | None = None, status: Status | None = None) -> Iterator[Task]:
        """Yield the saved tasks of `generation`, by default the current one, in the order of their numbers.

        Yield only the tasks with `status`, unless it is None.
        """
        query = {} if status is None else {"status": status.value}
        yield from map(read_task, self._find(self._name(_TASKS, generation), query))

    def save_tasks(self, tasks: Iterable[Task]) -> None:
        if self._unsaved_notes:
            # A task that is saved as done is not run again, so its notes must not be lost.
            self.update()
        statements = [
            {"q": {"_id": task.number}, "u": task_row(task), "upsert": True} for task in tasks
        ]
        self._write({"update": self._name(_TASKS), "updates": statements})

    def remove_task(self, task: Task) -> None:
        statement = {"q": {"_id": task.number}, "limit": 1}
        self._write({"delete": self._name(_TASKS), "deletes": [statement]})

    def add_rechecks(self, generation: int, rechecks: Iterable[Recheck]) -> None:
        self._insert(self._name(_RECHECKS, generation), map(recheck_row, rechecks))

    def rechecks(
        self, first: RecheckId | None = None, last: RecheckId | None = None
    ) -> Iterator[Recheck]:
        """Yield the rechecks of the current generation, in the order of their ids.

        Yield only the rechecks from `first` to `last` (inclusive); all rechecks if `first` or `last` is None.
        """
        bounds: Document = {}
        if first is not None and last is not None:
            bounds = {"_id": {"$gte": recheck_id(first), "$lte": recheck_id(last)}}
        yield from map(read_recheck, self._find(self._name(_RECHECKS), bounds))

    def whole_collections(self, among: Iterable[Namespace]) -> set[Namespace]:
        """Return the collections in `among` that the current generation compares again as a whole."""
        # Query by `_id`: very few of the many rechecks are for a whole collection.
        ids = [recheck_id(whole_collection(each).id) for each in among]
        rows = self._find(self._name(_RECHECKS), {"_id": {"$in": ids}})
        return {read_recheck(row).id.namespace for row in rows}

    def save_compared(self, found: Mapping[Namespace, NamespaceProgress]) -> None:
        """Save the progress of generation 0 in each namespace, in place of the progress saved before."""
        self._drop([_COMPARED])
        started = self.record.started
        self._insert(_COMPARED, (compared_row(*each, started) for each in found.items()))

    def compared(self) -> dict[Namespace, NamespaceProgress]:
        """Return the saved progress of generation 0 in each namespace.

        The result is empty if generation 0 is not complete, or if an earlier version of the program ran it.
        """
        # Select the rows of this check: an earlier version of the program leaves the rows of older checks.
        return dict(map(read_compared, self._find(_COMPARED, {"started": self.record.started})))

    def has_rechecks(self, generation: int) -> bool:
        rechecks = self._database[self._name(_RECHECKS, generation)]
        return self._ask(lambda session: rechecks.find_one(session=session)) is not None

    def add_document_mismatches(
        self, found: Iterable[DocumentMismatch], since: Mapping[bytes, float], seen: float
    ) -> None:
        """Save mismatches of documents, last seen at `seen`, for the current generation.

        `since` maps the digest of a document's key to the time at which the document was first seen to differ. For
        other documents, this time is `seen`. All times are in UNIX seconds.
        """
        rows = (document_mismatch_row(each, since, seen) for each in found)
        self._insert(self._name(DOCUMENTS), rows)

    def add_definition_mismatches(self, found: Iterable[DefinitionMismatch], seen: float) -> None:
        """Save mismatches of definitions, last seen at `seen` (UNIX seconds), for the current generation.

        A mismatch that the previous generation also found keeps the time at which it was first seen.
        """
        rows = [definition_mismatch_row(each, seen) for each in found]
        before = self._database[self._name(DEFINITIONS, self.record.generation - 1)]
        ids = [row["_id"] for row in rows]
        known = self._ask(lambda session: list(before.find({"_id": {"$in": ids}}, session=session)))
        first = {str(row["_id"]): row["first"] for row in known}
        for row in rows:
            row["first"] = first.get(str(row["_id"]), seen)
        self._insert(self._name(DEFINITIONS), rows)

    def forget_plan(self) -> None:
        """Drop the tasks and mismatches of the current generation, which an interrupted process may have saved."""
        names = {self._name(each) for each in (_TASKS, DOCUMENTS, DEFINITIONS)}
        # Drop only what exists: on a sharded cluster, dropping a missing collection takes long.
        self._drop(names.intersection(self._generations()))

    def drop_older(self) -> None:
        """Drop the tasks, rechecks and mismatches of all generations but the previous, current and next one."""
        kept = kept_generations(self.record.generation)
        self._drop(name for name in self._generations() if _number(name) not in kept)

    def _generations(self) -> list[str]:
        names = read(self._database.list_collection_names, self._stop)
        return [each for each in names if each.partition("_")[0] in _OF_A_GENERATION]

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            for uuid in self._uuids(name):
                try:
                    # Drop by UUID, so that a retried drop cannot drop a later collection with the same name.
                    self._run({"drop": name, "collectionUUID": uuid})
                except OperationFailure as error:
                    if error.code not in failures.DROPPED:
                        raise

    def _uuids(self, name: str) -> list[Any]:
        """Return a list with the UUID of the collection `name` in this database; empty if it does not exist."""
        query = {"name": name}
        rows = read(lambda: list(self._database.list_collections(filter=query)), self._stop)
        return [each["info"]["uuid"] for each in rows]

    def _insert(self, name: str, rows: Iterable[Document]) -> None:
        """Insert documents into the collection `name`. A document whose `_id` already exists stays unchanged."""

        def command(portion: list[Document]) -> Document:
            return {"insert": name, "documents": portion, "ordered": False}

        portion: list[Document] = []
        size = 0
        for row in rows:
            more = 200 + sum(len(each) for each in row.values() if isinstance(each, bytes))
            if len(portion) == _MOST_DOCUMENTS or portion and size + more > _MOST_BYTES:
                self._write(command(portion), failures.DUPLICATE_KEY)
                portion, size = [], 0
            portion.append(row)
            size += more
        if portion:
            self._write(command(portion), failures.DUPLICATE_KEY)

    def _write(self, command: Mapping[str, Any], ignored: int | None = None) -> Document:
        """Run a write command, and return the reply. Raise RuntimeError if the cluster refuses to save a document.

        Errors with the code `ignored` are ignored.
        """
        reply = self._run(command)
        errors = reply.get("writeErrors", [])
        if any(each["code"] != ignored for each in errors):
            raise RuntimeError(
                f"the cluster that stores the state of the check refused to save it: {errors[:3]}"
            )
        return reply

    def _run(self, command: Mapping[str, Any]) -> Document:
        try:
            reply, time = self._writer.run_timed(self._database.name, dict(command))
        except OperationFailure as error:
            if error.code == failures.USER_WRITES_BLOCKED:
                raise self._blocked() from error
            raise
        with self._timing:
            self._saved_until = max(self._saved_until or time, time)
        if any(
            each["code"] == failures.USER_WRITES_BLOCKED for each in reply.get("writeErrors", ())
        ):
            raise self._blocked()
        return reply

    def _blocked(self) -> OperationError:
        return OperationError(
            METADATA_BLOCKED,
            f"The state of the check cannot be saved in the database {self._database.name}, because user writes are "
            "blocked on the cluster of this database, and the user of this process lacks the privilege "
            "bypassWriteBlockingMode.",
        )


def _new_owner() -> str:
    return uuid4().hex


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])
