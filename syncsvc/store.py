"""What is saved of a sync, in our own database on the destination, so that a killed process goes on where it was.

One record of the run and one for each collection. Everything is saved with majority before it is visible or relied on.
A process that takes a run over puts its own random name into the record; a save that names another owner matches none,
and the process that tried it stops at once. (A name, not a counter: two processes may count to the same number, and a
take-over that is repeated after a lost answer must find itself.)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from time import monotonic
from typing import Any
from uuid import uuid4

from bson.binary import Binary
from bson.timestamp import Timestamp

from syncsvc import errors
from syncsvc.options import StartOptions
from syncsvc.schemas import StartSchema
from syncsvc.state import Phase, State
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.scan import ResumePoint
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.cluster.times import Position
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.schemas import load
from verifier.runtime.tasks import StopToken

METADATA_DATABASE = "mongosync_reserved_for_internal_use"
_RUNS = "runs"
_COLLECTIONS = "collections"

# How old the proof may be that this process owns its run, in seconds.
CONFIRM_INTERVAL = 1.0

# Raised whenever a record changes its meaning: another format is refused, never guessed at.
FORMAT = 2


@dataclass(frozen=True)
class Failure:
    """Why a run failed: a name of the error table and the full text."""

    name: str
    description: str


@dataclass(frozen=True)
class RunRecord:
    """One sync as it is saved.

    `owner` is the process that may save it, `identities` are of source and destination, `steps` are the finished steps
    of the cut-over, in order.
    """

    instance: str
    owner: str
    state: State
    phase: Phase
    options: StartOptions
    identities: tuple[str, str]
    start: Position | None = None
    position: Position | None = None
    copy_end: Timestamp | None = None
    commit_time: Timestamp | None = None
    steps: tuple[str, ...] = ()
    can_write: bool = False
    failure: Failure | None = None


def _run_document(record: RunRecord) -> dict[str, Any]:
    return {
        "_id": record.instance,
        "format": FORMAT,
        "owner": record.owner,
        "state": record.state.value,
        "phase": record.phase.value,
        "options": record.options.as_document(),
        "identities": list(record.identities),
        "start": _position_document(record.start),
        "position": _position_document(record.position),
        "copyEnd": record.copy_end,
        "commitTime": record.commit_time,
        "steps": list(record.steps),
        "canWrite": record.can_write,
        "failure": None if record.failure is None else asdict(record.failure),
    }


def _position_document(position: Position | None) -> dict[str, Any] | None:
    return None if position is None else asdict(position)


def _position(document: dict[str, Any] | None) -> Position | None:
    return None if document is None else Position(**document)


def _run_record(document: dict[str, Any]) -> RunRecord:
    if document.get("format") != FORMAT:
        raise OperationError(
            errors.INCOMPATIBLE_METADATA,
            f"The run in {METADATA_DATABASE} has format {document.get('format')}, not {FORMAT}.",
        )
    source, destination = document["identities"]
    return RunRecord(
        instance=document["_id"],
        owner=document["owner"],
        state=State(document["state"]),
        phase=Phase(document["phase"]),
        options=load(StartSchema(), document["options"]),
        identities=(source, destination),
        start=_position(document["start"]),
        position=_position(document["position"]),
        copy_end=document["copyEnd"],
        commit_time=document["commitTime"],
        steps=tuple(document["steps"]),
        can_write=document["canWrite"],
        failure=None if document["failure"] is None else Failure(**document["failure"]),
    )


def other_runs(client: Client, instance: str) -> list[str]:
    """The instances of other runs that are saved there. Raises the driver's errors."""
    return [
        str(each["_id"])
        for each in client[METADATA_DATABASE][_RUNS].find({"_id": {"$ne": instance}})
    ]


def load_run(client: Client, instance: str) -> RunRecord | None:
    """The saved run of that instance. Raises OperationError IncompatibleMetadata, and the driver's errors."""
    document = client[METADATA_DATABASE][_RUNS].find_one({"_id": instance})
    return None if document is None else _run_record(document)


def new_owner() -> str:
    """A name that no other process has."""
    return uuid4().hex


class RunStore:
    """The run record of this process: changes are saved first, then seen in `record`."""

    def __init__(self, writer: ClusterWriter, record: RunRecord) -> None:
        self._writer = writer
        self._lock = threading.Lock()  # one save at a time; guards the change of record
        self._confirmed_at = 0.0
        self.record = record

    @classmethod
    def begin(cls, writer: ClusterWriter, record: RunRecord) -> RunStore:
        """Save a new run. Raises OperationError Superseded when there is one of another process."""
        store = cls(writer, record)
        # What an earlier run left of its collections would count as copied.
        writer.run(METADATA_DATABASE, {"delete": _COLLECTIONS, "deletes": [{"q": {}, "limit": 0}]})
        reply = writer.run(
            METADATA_DATABASE, {"insert": _RUNS, "documents": [_run_document(record)]}
        )
        if reply.get("writeErrors"):
            # An insert that was repeated after a lost answer finds its own record, which may be saved again.
            store.update()
        return store

    @classmethod
    def take_over(cls, writer: ClusterWriter, record: RunRecord) -> RunStore:
        """Go on with a saved run. Raises OperationError Superseded when another process did so first."""
        store = cls(writer, record)
        store.update(owner=new_owner())
        return store

    def update(self, **changes: Any) -> RunRecord:
        """Save the record with these fields changed. Raises OperationError Superseded."""
        with self._lock:
            self._save(self.record, replace(self.record, **changes))
            return self.record

    def confirm(self) -> None:
        """Return when this process still owns the run, or did a moment ago. Raises OperationError Superseded.

        To be called before every write: a process that was stopped for a while must not go on writing what another
        process has gone past meanwhile.
        """
        if monotonic() - self._confirmed_at > CONFIRM_INTERVAL:
            self.update()

    def show(self, **changes: Any) -> None:
        """Change what is seen without saving it: for a process that no longer owns the record."""
        with self._lock:
            self.record = replace(self.record, **changes)

    def _save(self, old: RunRecord, new: RunRecord) -> None:
        query = {"_id": old.instance, "owner": {"$in": [old.owner, new.owner]}}
        statement = {"q": query, "u": _run_document(new)}
        reply = self._writer.run(METADATA_DATABASE, {"update": _RUNS, "updates": [statement]})
        if reply.get("writeErrors") or reply["n"] != 1:
            raise OperationError(
                errors.SUPERSEDED, f"The run of {old.instance} belongs to another process now."
            )
        self.record = new
        self._confirmed_at = monotonic()


class CopyStatus(Enum):
    WAITING = "waiting"
    COPYING = "copying"
    DONE = "done"


@dataclass(frozen=True)
class CollectionRecord:
    """One collection of the source, and how far its copy is. `total` and `copied` are in bytes.

    `definition` is what it will be on the destination after commit, under the name that it has there now. That is the
    source's name, except while another collection, of a later time, has it there: `source_name` is the one on the
    source at that point of the change stream where the replay is. While they are `withheld`, its indexes are not there.
    """

    definition: CollectionSpec
    status: CopyStatus
    source_name: Namespace
    total: int = 0
    copied: int = 0
    documents: int = 0
    resume: ResumePoint | None = None
    withheld: bool = False

    @property
    def present(self) -> CollectionSpec:
        """What the destination is to have of it now."""
        return replace(self.definition, indexes={}) if self.withheld else self.definition

    @property
    def uuid(self) -> bytes:
        assert self.definition.uuid is not None
        return self.definition.uuid

    @property
    def namespace(self) -> Namespace:
        """Where its documents are on the destination."""
        return self.definition.storage

    @property
    def source_storage(self) -> Namespace:
        """Where its documents are on the source."""
        return replace(self.definition, namespace=self.source_name).storage


def _collection_document(record: CollectionRecord) -> dict[str, Any]:
    definition = record.definition
    return {
        "_id": Binary(record.uuid, 4),
        "kind": definition.kind.value,
        "database": definition.namespace.database,
        "collection": definition.namespace.collection,
        "sourceCollection": record.source_name.collection,
        "options": definition.options,
        "indexes": list(definition.indexes.values()),
        "status": record.status.value,
        "total": record.total,
        "copied": record.copied,
        "documents": record.documents,
        "resume": None if record.resume is None else asdict(record.resume),
        "withheld": record.withheld,
    }


def _collection_record(document: dict[str, Any]) -> CollectionRecord:
    return CollectionRecord(
        definition=CollectionSpec(
            namespace=Namespace(document["database"], document["collection"]),
            kind=Kind(document["kind"]),
            uuid=bytes(document["_id"]),
            options=document["options"],
            indexes={index["name"]: index for index in document["indexes"]},
        ),
        status=CopyStatus(document["status"]),
        source_name=Namespace(document["database"], document["sourceCollection"]),
        total=document["total"],
        copied=document["copied"],
        documents=document["documents"],
        resume=None if document["resume"] is None else ResumePoint(**document["resume"]),
        withheld=document["withheld"],
    )


class Registry:
    """The collections of the source by UUID, which says to which namespace on the destination their events belong.

    Changed by the listing, by the copy of a collection and by definition events; always saved first.
    """

    def __init__(self, client: Client, writer: ClusterWriter, stop: StopToken) -> None:
        self._writer = writer
        self._lock = threading.Lock()  # guards _records and _holders
        # Held by whoever reads a record to save it changed, where that is not the tail alone.
        self.redefining = threading.RLock()
        collection = client[METADATA_DATABASE][_COLLECTIONS]
        documents = retry(lambda: list(collection.find()), failures.is_transient, stop)
        loaded = map(_collection_record, documents)
        self._records: dict[bytes, CollectionRecord] = {record.uuid: record for record in loaded}
        self._holders = {
            record.definition.namespace: record.uuid for record in self._records.values()
        }

    def get(self, uuid: bytes) -> CollectionRecord | None:
        with self._lock:
            return self._records.get(uuid)

    def at(self, namespace: Namespace) -> CollectionRecord | None:
        """The collection that has that name on the destination."""
        with self._lock:
            uuid = self._holders.get(namespace)
            return None if uuid is None else self._records[uuid]

    def __iter__(self) -> Iterator[CollectionRecord]:
        with self._lock:
            return iter(list(self._records.values()))

    def change(self, record: CollectionRecord, **changes: Any) -> CollectionRecord:
        """Save the newest record of the collection with these fields changed; several threads may, each its own."""
        with self.redefining:
            changed = replace(self.get(record.uuid) or record, **changes)
            self.save(changed)
            return changed

    def save(self, record: CollectionRecord) -> None:
        """Add the record, or put it in the place of the one with its UUID."""
        document = _collection_document(record)
        statement = {"q": {"_id": document["_id"]}, "u": document, "upsert": True}
        self._run({"update": _COLLECTIONS, "updates": [statement]})
        with self._lock:
            self._release_name(record.uuid)
            self._records[record.uuid] = record
            self._holders[record.definition.namespace] = record.uuid

    def remove(self, record: CollectionRecord) -> None:
        statement = {"q": {"_id": Binary(record.uuid, 4)}, "limit": 1}
        self._run({"delete": _COLLECTIONS, "deletes": [statement]})
        with self._lock:
            self._release_name(record.uuid)
            del self._records[record.uuid]

    def _release_name(self, uuid: bytes) -> None:
        old = self._records.get(uuid)
        if old is not None and self._holders.get(old.definition.namespace) == uuid:
            del self._holders[old.definition.namespace]

    def _run(self, command: dict[str, Any]) -> None:
        reply = self._writer.run(METADATA_DATABASE, command)
        if reply.get("writeErrors"):
            raise RuntimeError(f"the metadata cannot be saved: {reply['writeErrors']}")
