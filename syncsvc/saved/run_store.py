"""Saves the record of a run. Only one process may save it: the owner of the record.

Every save has write concern majority, and a saved change becomes visible only after its save.

A process that takes over a run puts its own random name into the record, as the owner. A save names the owner and the
version of the record that the process knows. If the saved record has another owner or version, the save changes
nothing and raises OperationError Superseded. (The owner is a name, not a counter: two processes may count to the same
number, and a takeover that is retried after a lost reply must recognise its own name.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, time
from typing import Any, NamedTuple
from uuid import uuid4

from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from syncsvc import errors
from syncsvc.metadata import Metadata
from syncsvc.saved.journal import Entry, Journal
from syncsvc.saved.run import RunRecord, with_begin
from syncsvc.saved.run_documents import RUNS, load_run, run_document
from syncsvc.saved.run_journal import with_changes
from verifier.cluster import failures
from verifier.cluster.bounds import one_save
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError
from verifier.runtime.retry import FOREVER, patience_left

# The index that allows at most one run: every coordinator saves the same value in the field `only`, and a follower
# saves its instance ID there.
_ONLY_INDEX = {"key": {"only": 1}, "name": "only", "unique": True}

# Appended to the error of a command whose save was not answered.
_MAY_BE_SAVED = (
    "The cluster may nevertheless have saved the command. This process withdraws the command within seconds after the "
    "cluster answers again. Do not restart this process before that: a restarted process would run the command."
)

# For how long a confirmation that this process owns its run is valid, in seconds.
CONFIRM_INTERVAL = 1.0
# A separate thread saves the record this often, in seconds, so that writes rarely wait for a save.
HEARTBEAT_INTERVAL = CONFIRM_INTERVAL / 2


def new_owner() -> str:
    """Return a new random name for the owner of a run. No other process has this name."""
    return uuid4().hex


def _do_nothing(record: RunRecord) -> None:
    pass


class _GaveUp(NamedTuple):
    """The last failed save of a thread whose retries had no time limit: its time, error kind and error description.

    The time is in seconds of the monotonic clock; 0 if there was no such failure.
    """

    at: float = 0.0
    kind: ErrorKind = INTERNAL_ERROR
    description: str = ""


class RunStore:
    """The run record of this process. Every change, except one by `show`, is saved before it is visible in `record`."""

    def __init__(self, database: str, writer: ClusterWriter, record: RunRecord) -> None:
        self._database = database
        self._writer = writer
        self._lock = threading.Lock()  # one save at a time; guards the change of record
        self._confirmed_at = 0.0
        self._gave_up = _GaveUp()
        self._saved = record
        # Whether the last save failed without a confirmation: then, either the old or the new record is saved.
        self._unconfirmed = False
        self._shown: dict[str, Any] = {}
        # The changes that the next save includes.
        self._deferred: dict[str, Any] = {}
        self._watch: Callable[[RunRecord], None] = _do_nothing
        # The new entries of the journal that the next save includes.
        self._notes: list[Entry] = []
        self.record = record
        # A cluster time that is not before any write acknowledged before the last answered attempt to replace the saved
        # record; None before the first answer.
        self.saved_time: Timestamp | None = None

    def insert(self) -> None:
        """Save the record of a new run for the first time.

        Raises OperationError MetadataLeftOver if another process began a sync first, and the driver's errors. After the
        driver's errors, the record may be saved: see `withdraw`.
        """
        # If two processes find no run at the same moment, one of them must fail, even if their IDs differ.
        self._writer.run(self._database, {"createIndexes": RUNS, "indexes": [_ONLY_INDEX]})
        documents = [run_document(self.record)]
        reply = self._writer.run(self._database, {"insert": RUNS, "documents": documents})
        if reply.get("writeErrors") and not self._is_ours():
            raise OperationError(
                errors.METADATA_LEFT_OVER,
                "Another process has begun a sync to the same destination at the same moment.",
            )

    @classmethod
    def take_over(cls, metadata: Metadata, writer: ClusterWriter, record: RunRecord) -> RunStore:
        """Make this process the owner of a saved run, and return the store of the run.

        If the previous owner has saved the run since `record` was read, the newest record is taken over. Raises
        OperationError Superseded if the run was deleted or another process has taken it over in the meantime, and
        IncompatibleMetadata if this version cannot read the newest record. Also raises the driver's errors.
        """
        store = cls(metadata.name, writer, record)
        try:
            store.update(owner=new_owner())
        except OperationError:
            newest = load_run(metadata, record.instance)
            if newest is None or newest.owner != record.owner or newest.beat == record.beat:
                raise
            # The owner of the run is still running, and has saved the record since it was read.
            return cls.take_over(metadata, writer, newest)
        return store

    def watch(self, watch: Callable[[RunRecord], None]) -> None:
        """Call `watch` with the record now, and after each change of its state. `watch` must not wait or raise."""
        with self._lock:
            self._watch = watch
            watch(self.record)

    def _publish(self) -> None:
        """Make the saved record visible, with the fields set by `show`. Call the watcher if the state has changed."""
        before, self.record = self.record, replace(self._saved, **self._shown)
        if self.record.state is not before.state:
            self._watch(self.record)

    def _is_ours(self) -> bool:
        """Return whether this process owns the saved run, by trying to save the run.

        Call this after the server refused to insert the run: the insert may be a retry whose first attempt has
        succeeded.
        """
        try:
            self.update()
        except OperationError:
            return False
        return True

    def update(self, command: Entry | None = None, **changes: Any) -> RunRecord:
        """Save the record with the fields in `changes`, and return the record. A `command` is added to the journal.

        A command is saved only after the cluster has answered a save of the unchanged record. So a command that is
        sent during an outage is refused, and a restarted process does not run it.

        Raises OperationError Superseded if another process owns the run, or the run was deleted. If the save fails,
        raises the driver's error or an OperationError with the same meaning, for example ClusterUnreachable. The same
        can happen if this thread must wait for a save of another thread, and that save fails or takes too long.
        """
        return self.update_unless(_do_nothing, command, **changes)

    def update_unless(
        self, refuse: Callable[[RunRecord], None], command: Entry | None = None, **changes: Any
    ) -> RunRecord:
        """Call `refuse` with the newest record. Unless `refuse` raises, save the record with the fields in `changes`.

        No other thread of this process changes the record between the two steps. For errors and `command`, see
        `update`.
        """
        with self._one_save():
            refuse(self.record)
            if command is None:
                self._save_changes(changes)
            else:
                self._save_command(command, changes)
            return self.record

    def _save_command(self, command: Entry, changes: Mapping[str, Any]) -> None:
        self._save_changes({})
        journal = self._saved.journal.with_entries(command)
        try:
            with failures.named_errors():
                self._save_changes({**changes, "journal": journal})
        except OperationError as error:
            if error.kind is not failures.CLUSTER_UNREACHABLE:
                raise
            raise OperationError(error.kind, f"{error.description} {_MAY_BE_SAVED}") from error

    def _save_changes(self, changes: Mapping[str, Any]) -> None:
        changes = {**self._deferred, **changes}
        self._save(self._saved, replace(self._saved, **changes))
        self._deferred = {}
        self._shown = {name: self._shown[name] for name in self._shown if name not in changes}
        self._publish()

    def note(self, entry: Entry) -> None:
        """Add an entry to the journal. The next save of the record includes the entry. Never waits."""
        self._notes.append(entry)

    def revise(self, change: Callable[[Journal], Journal]) -> None:
        """Call `change` with the newest journal. If `change` returns a different journal, save that journal.

        Also save the record if the next save has to include deferred changes or noted entries, or if the last save was
        not confirmed: the saved record may then contain a refused command, which a restarted process would run. Raises
        the errors of `update`.
        """
        with self._one_save():
            journal = change(self._saved.journal)
            if self._unconfirmed or self._deferred or self._notes or journal != self._saved.journal:
                self._save_changes({"journal": journal})

    @contextmanager
    def _one_save(self) -> Iterator[None]:
        requested_at, is_patient = monotonic(), patience_left() == FOREVER
        with one_save(self._lock, "the run record"):
            if self._gave_up.at > requested_at:
                raise OperationError(self._gave_up.kind, self._gave_up.description)
            try:
                yield
            except PyMongoError as error:
                if is_patient:
                    # Threads that wait for the lock raise this error, too. Otherwise, each of them would retry for as
                    # long, one after another.
                    kind = failures.named_kind(error) or INTERNAL_ERROR
                    self._gave_up = _GaveUp(monotonic(), kind, f"{failures.text_of(error)}.")
                raise

    def confirm(self, within: float = CONFIRM_INTERVAL) -> None:
        """Raise OperationError Superseded if this process no longer owns the run.

        If the last successful save began more than `within` seconds ago, save the record again to find out. Call this
        before every write: a process that was suspended must not overwrite newer data of the process that replaced it.
        Also raises the other errors of `update`.
        """
        if self._is_confirmed(within):
            return
        with self._one_save():
            # Of the threads that waited for the same save, only the first one repeats it.
            if not self._is_confirmed(within):
                self._save_changes({})

    def _is_confirmed(self, within: float) -> bool:
        return monotonic() - self._confirmed_at <= within

    def show(self, **changes: Any) -> None:
        """Set fields of the visible record without saving them: the keyword arguments are the fields.

        Use this if this process no longer owns the run or cannot save it now. Later saves do not save these values. A
        later call with the same fields, or a later save that changes them, replaces the values.
        """
        with self._lock:
            self._shown = {**self._shown, **changes}
            self._publish()

    def defer(self, **changes: Any) -> None:
        """Include these changes in every save until a save succeeds. They replace the changes of an earlier call."""
        with self._lock:
            self._deferred = changes

    def withdraw(self) -> None:
        """Delete the saved record of the run, unless it has another owner. Raises the driver's errors."""
        record = self.record
        query = {"_id": record.instance, "owner": record.owner}
        command = {"delete": RUNS, "deletes": [{"q": query, "limit": 1}]}
        self._writer.run(self._database, command)

    def drop_all(self, uuid: Binary) -> None:
        """Drop the collection with the run records of all instances, as the last step of a reset.

        `uuid` is the UUID of that collection. Raises the errors of `confirm`, and the driver's errors.
        """
        self.confirm()
        self._writer.drop(self._database, RUNS, uuid)

    def _save(self, old: RunRecord, new: RunRecord) -> None:
        now, noted = time(), len(self._notes)
        new = replace(new, journal=new.journal.with_entries(*self._notes[:noted]))
        new = replace(
            new,
            beat=old.beat + 1,
            phases=with_begin(old, new.phase, now),
            journal=with_changes(old, new, now),
        )
        # Use the time of the request, not of the reply: another process may take the run over in between.
        requested_at = monotonic()
        # The query matches the record that this save replaces, and also the record that this save writes, because the
        # save may be retried after a lost reply. If the owner has saved the record since it was read, the query matches
        # nothing: a takeover based on the older record would undo the owner's later changes.
        saved = [{"owner": each.owner, "beat": each.beat} for each in (old, new)]
        query = {"_id": old.instance, "$or": saved}
        statement = {"q": query, "u": run_document(new)}
        self._unconfirmed = True
        command = {"update": RUNS, "updates": [statement]}
        reply, self.saved_time = self._writer.run_timed(self._database, command)
        self._unconfirmed = False
        if reply.get("writeErrors") or reply["n"] != 1:
            raise OperationError(
                errors.SUPERSEDED,
                f"Another process has taken over the sync of the instance {old.instance}, or its record was deleted.",
            )
        self._saved = new
        del self._notes[:noted]
        self._confirmed_at = requested_at
