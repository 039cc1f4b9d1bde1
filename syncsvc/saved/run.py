"""The saved record of a run, and the owner of the record: the only process that may save it.

Everything is saved with write concern majority before it is visible or relied on.

A process that takes over a run puts its own random name into the record, as the owner. A save names the owner and the
version of the record that the process knows. If the saved record has another owner or version, the save matches
nothing, and the process stops at once. (The owner is a name, not a counter: two processes may count to the same number,
and a takeover that is retried after a lost reply must recognise its own name.)
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from bson.binary import Binary
from bson.timestamp import Timestamp
from marshmallow import ValidationError, fields
from pymongo.errors import OperationFailure, PyMongoError

from syncsvc import __version__, errors
from syncsvc.metadata import Metadata
from syncsvc.options import CopyReadPreference, StartOptions
from syncsvc.principals.comparison import PrincipalCounts, described
from syncsvc.saved.journal import (
    Direction,
    Entry,
    Journal,
    Kind,
    Process,
    StoredJournal,
)
from syncsvc.saved.stored import Stored, StoredOptions, StoredPosition
from syncsvc.state import ACTIVE, Phase, State
from verifier.cluster import failures
from verifier.cluster.bounds import one_save
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import NamespaceMap
from verifier.cluster.newest import read_newest
from verifier.cluster.times import Position
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError
from verifier.runtime.formats import Formats
from verifier.runtime.retry import FOREVER, patience_left

RUNS = "runs"
# The index that allows at most one run: every coordinator saves the same value in this field, and a follower saves its
# instance ID.
_ONLY_INDEX = {"key": {"only": 1}, "name": "only", "unique": True}

# The most phases that a record lists. A sync has six if no commit is withdrawn and the sync is not reversed.
MOST_PHASES = 50

# For how long a confirmation that this process owns its run is valid, in seconds.
CONFIRM_INTERVAL = 1.0
# A separate thread saves the record this often, in seconds, so that writes rarely wait for a save.
HEARTBEAT_INTERVAL = CONFIRM_INTERVAL / 2


@dataclass(frozen=True)
class Failure:
    """The error that a run failed with: its name in the error table, and the full text.

    `elsewhere` is whether another instance failed with the error, and this instance stopped because of that.
    """

    name: str
    description: str
    # False in records that earlier versions saved.
    elsewhere: bool = False


@dataclass(frozen=True)
class PhaseBegin:
    """A phase, and when it began, in UNIX seconds by the clock of the process that began it."""

    phase: Phase
    at: float


@dataclass(frozen=True)
class RunRecord:
    """The saved state of one sync, as one instance knows it.

    The record always stays on the cluster that is the destination of the start options, even after a reversal.
    """

    # The ID of the instance.
    instance: str
    # The random name of the only process that may save the record.
    owner: str
    state: State
    phase: Phase
    options: StartOptions
    # The identities of the source and the destination of the options.
    identities: tuple[str, str]
    # The sessions of all writes are derived from this UUID: see `syncsvc.saved.fence`.
    fence: UUID
    # Where the change events of the sync begin; None until it is known.
    start: Position | None = None
    # Up to where change events are applied; None until it is known.
    position: Position | None = None
    # The cluster time of the source at the end of the copy; None until then.
    copy_end: Timestamp | None = None
    # All changes up to this cluster time of the source are applied before the commit; None until a commit has set it.
    commit_time: Timestamp | None = None
    # The finished steps of the cut-over, in order.
    steps: tuple[str, ...] = ()
    # Whether users may write to the destination.
    can_write: bool = False
    failure: Failure | None = None
    # How often the sync was reversed.
    reversals: int = 0
    # Where the change events of the next reversal begin, in the destination's change stream; None until it is known.
    reverse_start: Position | None = None
    # Where the former source's change stream was at the commit before the newest reversal; None before the first one,
    # and in records that earlier versions saved.
    committed: Position | None = None
    # The clusters whose users this sync blocks, and whether they were already blocked before.
    found_blocked: Mapping[str, bool] = field(default_factory=dict)
    # The clusters whose balancer this sync has stopped, and whether it was on before.
    found_balancing: Mapping[str, bool] = field(default_factory=dict)
    # The IDs of all instances of the run, the coordinator first; empty if one instance runs alone.
    instances: tuple[str, ...] = ()
    # The resume token of the newest DDL event that this instance has reached; in the record of the coordinator, of the
    # newest one that it has applied for all instances.
    barrier: str | None = None
    # Whether all instances were close enough to the source for a commit when the coordinator last checked.
    caught_up: bool = False
    # Increases with each save.
    beat: int = 0
    # The numbers of an engine's writes begin with the epoch, which increases each time an engine is created: see
    # `syncsvc.saved.fence`.
    epoch: int = 0
    # Increases each time the sync is resumed after a saved failure. An instance with a lower number than another one
    # has not been resumed yet.
    attempt: int = 0
    # Numbers of repair rounds: the newest one whose list of differences is saved, the newest one that this instance has
    # finished, and the newest one that all instances have finished.
    repair: int = 0
    repaired: int = 0
    repair_done: int = 0
    # How many repair rounds the present commit has begun.
    commit_repairs: int = 0
    # How many repairs users have requested, and for how many of them the list of differences is saved.
    repair_requests: int = 0
    repair_requests_met: int = 0
    # How many documents, and differences in definitions, are in the list of repairs.
    repaired_documents: int = 0
    repaired_definitions: int = 0
    # The users and roles that the newest copy, by a commit or on request, has copied; None until it is complete.
    principals: PrincipalCounts | None = None
    # The newest phases and when they began, the oldest first; empty for a sync of an older version.
    phases: tuple[PhaseBegin, ...] = ()
    # What has happened to the sync in this instance; empty for a sync of an older version.
    journal: Journal = Journal()

    @property
    def repair_requested(self) -> bool:
        return self.repair_requests_met < self.repair_requests

    @property
    def repairs_now(self) -> bool:
        """Return whether a repair of differences is requested or has begun, and is not complete yet."""
        done = self.repair_done if self.coordinates else self.repaired
        return self.repair_requested or done < self.repair

    @property
    def coordinator(self) -> str:
        """Return the ID of the coordinator: the instance that does the work needed only once for all instances."""
        return self.instances[0] if self.instances else self.instance

    @property
    def coordinates(self) -> bool:
        return self.coordinator == self.instance

    @property
    def source(self) -> str:
        """Return the name of the cluster that is read now. Each reversal swaps source and destination."""
        return self.options.destination if self.reversals % 2 else self.options.source

    @property
    def destination(self) -> str:
        """Return the name of the cluster that is written now. Each reversal swaps source and destination."""
        return self.options.source if self.reversals % 2 else self.options.destination

    @property
    def names(self) -> NamespaceMap:
        """Return the map from names on the cluster that is read now to names on the cluster that is written now."""
        return self.options.names.inverse if self.reversals % 2 else self.options.names

    @property
    def in_use(self) -> bool:
        """Return whether users may write to the destination of the start, or may have done so before a reversal."""
        return self.can_write or self.reversals > 0

    def in_natural_order(self, name: Namespace) -> bool:
        """Return whether a collection is copied in natural order. `name` is its name on the present source."""
        # The option has the names of the cluster that is written after a reversal.
        first = self.names.to_destination(name) if self.reversals % 2 else name
        return self.options.in_natural_order(first)


class _StoredFailure(Stored):
    kind = Failure

    name = fields.String(required=True)
    description = fields.String(required=True)
    elsewhere = fields.Boolean()


class _StoredPhase(Stored):
    kind = PhaseBegin

    phase = fields.Enum(Phase, by_value=True, required=True)
    at = fields.Float(required=True)


class _StoredPrincipals(Stored):
    kind = PrincipalCounts

    users = fields.Integer()
    roles = fields.Integer()
    equal = fields.Integer()
    kept = fields.Integer()
    conflicts = fields.Integer()


class _StoredRun(Stored):
    kind = RunRecord

    instance = fields.String(data_key="_id", required=True)
    owner = fields.String(required=True)
    state = fields.Enum(State, by_value=True, required=True)
    phase = fields.Enum(Phase, by_value=True, required=True)
    options = fields.Nested(StoredOptions, required=True)
    identities = fields.Tuple((fields.String(), fields.String()), required=True)
    fence = fields.UUID(required=True)
    start = fields.Nested(StoredPosition, allow_none=True)
    position = fields.Nested(StoredPosition, allow_none=True)
    copy_end = fields.Raw(data_key="copyEnd", allow_none=True)
    commit_time = fields.Raw(data_key="commitTime", allow_none=True)
    steps = fields.List(fields.String())
    can_write = fields.Boolean(data_key="canWrite")
    failure = fields.Nested(_StoredFailure, allow_none=True)
    reversals = fields.Integer()
    reverse_start = fields.Nested(StoredPosition, data_key="reverseStart", allow_none=True)
    committed = fields.Nested(StoredPosition, allow_none=True)
    found_blocked = fields.Dict(data_key="foundBlocked")
    found_balancing = fields.Dict(data_key="foundBalancing")
    instances = fields.List(fields.String())
    barrier = fields.String(allow_none=True)
    caught_up = fields.Boolean(data_key="caughtUp")
    beat = fields.Integer()
    epoch = fields.Integer()
    attempt = fields.Integer()
    repair = fields.Integer()
    repaired = fields.Integer()
    repair_done = fields.Integer(data_key="repairDone")
    commit_repairs = fields.Integer(data_key="commitRepairs")
    repair_requests = fields.Integer(data_key="repairRequests")
    repair_requests_met = fields.Integer(data_key="repairRequestsMet")
    repaired_documents = fields.Integer(data_key="repairedDocuments")
    repaired_definitions = fields.Integer(data_key="repairedDefinitions")
    principals = fields.Nested(_StoredPrincipals, allow_none=True)
    phases = fields.List(fields.Nested(_StoredPhase))
    journal = fields.Nested(StoredJournal)


def _rename_reversals(document: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a saved record from format 6 to 7: rename fields of reversals; make verification a boolean."""
    renamed = {"turns": "reversals", "wayBack": "reverseStart"}
    options = document["options"]
    return {
        **{renamed.get(name, name): value for name, value in document.items()},
        "options": {**options, "verification": options["verification"]["enabled"]},
    }


def _allow_options(document: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a saved record from format 7 to 8: only the number changes, because format 8 only allows more options."""
    return document


# The format of a record without the options of `_needs_current_format`. Earlier versions may continue such a sync.
_WITHOUT_NEW_OPTIONS = 7
# Formats before 6 were never released. The rows of collections and partitions have no format, because instances of
# different versions may save them concurrently. So a new field of these rows needs a default for when it is missing,
# and a row whose meaning changes needs a field that says so.
FORMATS = Formats(
    subject="The saved sync in the metadata database",
    oldest=6,
    steps=(_rename_reversals, _allow_options),
    unsupported=errors.INCOMPATIBLE_METADATA,
)


def _needs_current_format(options: StartOptions) -> bool:
    """Return whether an earlier version must not continue the sync, because it would ignore one of the options.

    An earlier version would commit without users and roles, read the primary, use the source's names on the
    destination, sync all documents, or change foreign data.
    """
    return (
        options.users_and_roles is not None
        or options.copy_read_preference is not CopyReadPreference.PRIMARY
        or bool(options.namespace_remap)
        or bool(options.document_filters)
        or options.pre_existing_destination_data
    )


def _run_document(record: RunRecord) -> dict[str, Any]:
    new = _needs_current_format(record.options)
    return {
        "format": FORMATS.current if new else _WITHOUT_NEW_OPTIONS,
        "only": True if record.coordinates else record.instance,
        **_StoredRun().dump(record),
    }


def _run_record(document: dict[str, Any]) -> RunRecord:
    """Convert a saved document to a RunRecord.

    Raises OperationError IncompatibleMetadata if the format of the document is unsupported.
    """
    try:
        record: RunRecord = _StoredRun().load(FORMATS.upgrade(document))
    except ValidationError as error:
        raise OperationError(
            errors.INCOMPATIBLE_METADATA, f"{FORMATS.subject} cannot be read: {error.messages}."
        ) from error
    return record


def saved_instances(metadata: Metadata) -> tuple[str, ...]:
    """Return the IDs of the instances whose runs are saved in the metadata. Raises the driver's errors."""
    return tuple(str(each["_id"]) for each in metadata[RUNS].find())


def load_owner(metadata: Metadata, instance: str) -> str | None:
    """Return the owner of an instance's saved run; None if there is no run. Raises the driver's errors."""
    found = metadata[RUNS].find_one({"_id": instance}, {"owner": True})
    return None if found is None else str(found["owner"])


def load_run(metadata: Metadata, instance: str) -> RunRecord | None:
    """Return the saved run of an instance; None if there is none.

    Raises OperationError IncompatibleMetadata, and the driver's errors.
    """
    document = read_newest(metadata.client, metadata.name, RUNS, instance)
    return None if document is None else _run_record(document)


def load_runs(metadata: Metadata, *instances: str, with_journals: bool = False) -> list[RunRecord]:
    """Return the saved runs of the instances with these IDs; without an ID, those of all instances.

    The journals are left out, because few callers need them, unless `with_journals`. Raises OperationError
    IncompatibleMetadata, and the driver's errors.
    """
    query = {"_id": {"$in": instances}} if instances else {}
    projection = None if with_journals else {"journal": False}
    return [_run_record(each) for each in metadata[RUNS].find(query, projection)]


def with_begin(record: RunRecord, phase: Phase, now: float) -> tuple[PhaseBegin, ...]:
    """Return the phases of a record that enters `phase` at `now`, with their begin times.

    The phases are unchanged if the record is already in `phase`. `now` is in UNIX seconds.
    """
    if record.phase is phase:
        return record.phases
    return (*record.phases, PhaseBegin(phase, now))[-MOST_PHASES:]


def this_process(now: float, gap: float | None = None) -> Process:
    """Return the journal's entry about this process, which begins a sync or takes it over at `now`.

    `gap` is the number of seconds before `now` in which no process ran the sync; None if unknown.
    """
    return Process(now, __version__, socket.gethostname(), gap)


def with_changes(old: RunRecord, new: RunRecord, now: float) -> Journal:
    """Return the journal of `new`, with an entry added for each change since `old`. `now` is the time of the change."""
    journal = new.journal
    if new.owner != old.owner:
        journal = journal.with_process(this_process(now, _gap(old, now)))
    if new.reversals > old.reversals:
        journal = journal.with_direction(_direction(old, now))
    return replace(journal.with_entries(*_entries(old, new, now)), saved_at=now)


def _gap(old: RunRecord, now: float) -> float | None:
    """Return the seconds from the last save of the record to `now`; None if unknown, or if the sync was not active."""
    saved_at = old.journal.saved_at
    return None if saved_at is None or old.state not in ACTIVE else max(0.0, now - saved_at)


def _direction(ended: RunRecord, now: float) -> Direction:
    return Direction(
        ended.source,
        ended.destination,
        now,
        ended.journal.counts,
        ended.journal.verified,
        ended.repaired_documents,
        ended.repaired_definitions,
    )


def _entries(old: RunRecord, new: RunRecord, now: float) -> Iterator[Entry]:
    if new.failure is not None and new.failure != old.failure:
        yield failure_entry(new.failure, now)
    if new.state is not old.state:
        yield Entry(Kind.STATE, now, new.state.value)
    if new.phase is Phase.WITHDRAWING and old.phase is not new.phase:
        yield Entry(Kind.WITHDRAWN, now)
    if new.can_write and not old.can_write:
        yield Entry(Kind.WRITABLE, now)
    if new.principals is not None and new.principals != old.principals:
        yield Entry(Kind.PRINCIPALS, now, described(new.principals))
    if new.repair_done > old.repair_done:
        text = f"{new.repaired_documents} documents, {new.repaired_definitions} definitions"
        yield Entry(Kind.REPAIRED, now, text)


def failure_entry(failure: Failure, now: float) -> Entry:
    return Entry(Kind.FAILURE, now, f"{failure.name}: {failure.description}")


def new_owner() -> str:
    """Return a new random name for the owner of a run. No other process has this name."""
    return uuid4().hex


def drop_metadata(writer: ClusterWriter, database: str, name: str, uuid: Binary) -> None:
    """Drop the metadata collection with this name and UUID; a no-op if there is no such collection."""
    try:
        writer.run(database, {"drop": name, "collectionUUID": uuid})
    except OperationFailure as error:
        if error.code not in failures.DROPPED:
            raise


def refuse_in_use(record: RunRecord) -> None:
    """Raise OperationError DestinationInUse if users may write to the destination, or if the sync was reversed.

    After a reversal, users have written to both clusters.
    """
    if record.in_use:
        users = "canWrite is true" if record.can_write else "the sync was reversed after a commit"
        raise OperationError(
            errors.DESTINATION_IN_USE,
            f"The sync cannot be reset: {users}, and {record.options.destination} may hold data of users.",
        )


def refuse_resetting(record: RunRecord) -> None:
    """Raise OperationError InvalidState if the run is being reset."""
    if record.state is State.RESETTING:
        raise OperationError(errors.INVALID_STATE, "The sync is being reset.")


def _do_nothing(record: RunRecord) -> None:
    pass


class _GaveUp(NamedTuple):
    """The last save of the run record that failed and is not retried: its time, error kind and error description.

    The time is in seconds of the monotonic clock; 0 if no save has failed.
    """

    at: float = 0.0
    kind: ErrorKind = INTERNAL_ERROR
    description: str = ""


class RunStore:
    """The run record of this process. Every change is saved before it is visible in `record`, except by `show`."""

    def __init__(self, database: str, writer: ClusterWriter, record: RunRecord) -> None:
        self._database = database
        self._writer = writer
        self._lock = threading.Lock()  # one save at a time; guards the change of record
        self._confirmed_at = 0.0
        self._gave_up = _GaveUp()
        self._saved = record
        self._shown: dict[str, Any] = {}
        self._watch: Callable[[RunRecord], None] = _do_nothing
        # The entries of the journal that are saved with the next change of the record.
        self._notes: list[Entry] = []
        self.record = record

    def insert(self) -> None:
        """Save the record of a new run for the first time.

        Raises OperationError MetadataLeftOver if another process began a sync first, and the driver's errors. After the
        driver's errors, the record may be saved: see `withdraw`.
        """
        # If two processes find no run at the same moment, one of them must fail, even if their IDs differ.
        self._writer.run(self._database, {"createIndexes": RUNS, "indexes": [_ONLY_INDEX]})
        documents = [_run_document(self.record)]
        reply = self._writer.run(self._database, {"insert": RUNS, "documents": documents})
        if reply.get("writeErrors") and not self._is_ours():
            raise OperationError(
                errors.METADATA_LEFT_OVER,
                "Another process has begun a sync to the same destination at the same moment.",
            )

    @classmethod
    def take_over(cls, metadata: Metadata, writer: ClusterWriter, record: RunRecord) -> RunStore:
        """Make this process the owner of a saved run: save its newest record with a new owner.

        Raises OperationError Superseded if another process took the run over first.
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
        """Save the record with the fields in `changes`; return the record. A `command` is added to the journal.

        Raises OperationError Superseded if another process owns the run. In a block of `retry.impatient`, raises
        OperationError ClusterUnreachable if another thread's save hangs. If another thread's save fails while this
        thread waits for it, raises the error of that save. Also raises the driver's errors.
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
            self._save_changes(changes, command)
            return self.record

    def _save_changes(self, changes: Mapping[str, Any], command: Entry | None = None) -> None:
        journal = self._saved.journal.with_entries(*([] if command is None else [command]))
        self._save(self._saved, replace(self._saved, journal=journal, **changes))
        self._shown = {name: self._shown[name] for name in self._shown if name not in changes}
        self._publish()

    def note(self, entry: Entry) -> None:
        """Add an entry to the journal. The next change of the record saves the entry. Never waits."""
        self._notes.append(entry)

    def revise(self, change: Callable[[Journal], Journal]) -> None:
        """Call `change` with the newest journal, and save the journal that it returns, unless nothing has changed.

        Raises the errors of `update`.
        """
        with self._one_save():
            journal = change(self._saved.journal)
            if self._notes or journal != self._saved.journal:
                self._save(self._saved, replace(self._saved, journal=journal))
                self._publish()

    @contextmanager
    def _one_save(self) -> Iterator[None]:
        requested_at, is_patient = monotonic(), patience_left() == FOREVER
        with one_save(self._lock, "The run record"):
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

        If the last save began more than `within` seconds ago, save the record again to find out. Call this before every
        write: a process that was suspended must not overwrite newer data of the process that replaced it.
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

    def withdraw(self) -> None:
        """Delete the saved record of a run that has done nothing yet, because its start is refused."""
        record = self.record
        query = {"_id": record.instance, "owner": record.owner}
        command = {"delete": RUNS, "deletes": [{"q": query, "limit": 1}]}
        self._writer.run(self._database, command)

    def drop_all(self, uuid: Binary) -> None:
        """Drop the collection that holds the run records of all instances, which ends a reset.

        `uuid` is the UUID of that collection: a delayed command cannot drop the records of a new run, because their
        collection has another UUID. This is a no-op if the collection was already dropped. Raises OperationError
        Superseded, and the driver's errors.
        """
        self.confirm()
        drop_metadata(self._writer, self._database, RUNS, uuid)

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
        statement = {"q": query, "u": _run_document(new)}
        reply = self._writer.run(self._database, {"update": RUNS, "updates": [statement]})
        if reply.get("writeErrors") or reply["n"] != 1:
            raise OperationError(
                errors.SUPERSEDED,
                f"Another process has taken over the sync of the instance {old.instance}.",
            )
        self._saved = new
        del self._notes[:noted]
        self._confirmed_at = requested_at
