"""The registry of the source's collections, by UUID: definition, name on the destination, and progress of the copy."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from bson.binary import Binary

from syncsvc.metadata import Metadata
from syncsvc.saved.rows import Rows
from syncsvc.source.natural_scan import ResumePoint
from verifier.cluster import rawbson
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The metadata collections of the two directions, by the number of reversals modulo 2.
_COLLECTIONS = ("collections", "collectionsReversed")
# Fields that are saved without the other fields of the record, because another instance may have changed those: for
# example, one instance saves the progress of the copy while another one withholds indexes.
_OF_THE_COPY = {
    *("status", "total", "totalDocuments", "copied", "documents", "resume", "withheld"),
    "destinationUuid",
}


def collections_of(reversals: int) -> str:
    """Return the name of the metadata collection for the registry of a sync that was reversed `reversals` times."""
    return _COLLECTIONS[reversals % len(_COLLECTIONS)]


class CopyStatus(Enum):
    WAITING = "waiting"
    COPYING = "copying"
    DONE = "done"


@dataclass(frozen=True)
class CollectionRecord:
    """One collection of the source, and the progress of its copy."""

    # The definition that the collection will have on the destination after the commit. Its namespace is the name that
    # the collection has on the destination now: the name to which `RunRecord.names` maps the source's name, or a
    # temporary name while another collection has that name on the destination.
    definition: CollectionSpec
    status: CopyStatus
    # The name on the source at the point up to which change events are applied.
    source_name: Namespace
    # The shard key on the source, with the fields `key` and `unique`; None if the collection is not sharded there.
    source_key: Document | None = None
    # Bytes and documents to copy, as estimated before the copy.
    total: int = 0
    total_documents: int = 0
    # Bytes and documents copied so far.
    copied: int = 0
    documents: int = 0
    # Only set if an earlier version has begun to copy the collection; now, `partitions` saves the resume points.
    resume_point: ResumePoint | None = None
    # Whether the indexes are withheld from the destination (see `current_definition`).
    withheld: bool = False
    # The UUID of the collection that the sync has created on the destination (for a time-series collection, of its
    # buckets); in a reversed sync, of the collection that the sync read before the reversal. None until the collection
    # is created, and in rows that earlier versions saved.
    destination_uuid: bytes | None = None

    @property
    def current_definition(self) -> CollectionSpec:
        """Return the definition of the collection on the destination, from which its stand-in definition is derived.

        The result has no indexes while the indexes of the collection are withheld: one of them refused a document, so
        the sync has dropped them all, and builds them again later.
        """
        return replace(self.definition, indexes={}) if self.withheld else self.definition

    @property
    def is_copied(self) -> bool:
        """Return whether the copy of the collection is saved as complete."""
        return self.status is CopyStatus.DONE

    @cached_property
    def uuid(self) -> bytes:
        assert self.definition.uuid is not None
        return self.definition.uuid

    @property
    def namespace(self) -> Namespace:
        """Return the namespace that stores the documents on the destination: for time series, the bucket collection."""
        return self.definition.storage

    @property
    def on_source(self) -> CollectionSpec:
        """Return the collection's definition under the name that the collection has on the source."""
        return replace(self.definition, namespace=self.source_name)

    @cached_property
    def source_storage(self) -> Namespace:
        """Return the namespace that stores the documents on the source: for time series, the bucket collection."""
        return self.on_source.storage


def _collection_document(record: CollectionRecord) -> dict[str, Any]:
    definition = record.definition
    return {
        "_id": Binary(record.uuid, 4),
        "kind": definition.kind.value,
        "database": definition.namespace.database,
        "collection": definition.namespace.collection,
        "sourceDatabase": record.source_name.database,
        "sourceCollection": record.source_name.collection,
        "options": definition.options,
        "indexes": list(definition.indexes.values()),
        "shardKey": definition.shard_key,
        "sourceKey": record.source_key,
        "status": record.status.value,
        "total": record.total,
        "totalDocuments": record.total_documents,
        "copied": record.copied,
        "documents": record.documents,
        "resume": None if record.resume_point is None else asdict(record.resume_point),
        "withheld": record.withheld,
        "destinationUuid": _uuid_document(record.destination_uuid),
    }


def _uuid_document(uuid: bytes | None) -> Binary | None:
    return None if uuid is None else Binary(uuid, 4)


def _collection_record(document: dict[str, Any]) -> CollectionRecord:
    destination_uuid = document.get("destinationUuid")
    return CollectionRecord(
        definition=CollectionSpec(
            namespace=Namespace(document["database"], document["collection"]),
            kind=Kind(document["kind"]),
            uuid=bytes(document["_id"]),
            options=document["options"],
            indexes={index["name"]: index for index in document["indexes"]},
            shard_key=document["shardKey"],
        ),
        status=CopyStatus(document["status"]),
        # Earlier versions gave a collection the same database on both clusters.
        source_name=Namespace(
            document.get("sourceDatabase", document["database"]), document["sourceCollection"]
        ),
        # Earlier versions saved one key: both clusters had the same, or the source was a replica set.
        source_key=document.get("sourceKey", document["shardKey"]) or None,
        total=document["total"],
        total_documents=document["totalDocuments"],
        copied=document["copied"],
        documents=document["documents"],
        resume_point=None if document["resume"] is None else ResumePoint(**document["resume"]),
        withheld=document["withheld"],
        destination_uuid=None if destination_uuid is None else bytes(destination_uuid),
    )


def _statement(old: CollectionRecord | None, new: CollectionRecord) -> dict[str, Any]:
    """Return the statement of an update command that saves `new`.

    If `new` differs from `old` only in the fields `_OF_THE_COPY`, such as the progress, the statement sets the fields
    that differ. Otherwise, it is an upsert of the whole record. A retry after a lost reply is a no-op.
    """
    document = _collection_document(new)
    query = {"_id": document["_id"]}
    if old is not None:
        before = _collection_document(old)
        changed = {name: value for name, value in document.items() if before[name] != value}
        if changed.keys() <= _OF_THE_COPY:
            return {"q": query, "u": {"$set": changed}}
    return {"q": query, "u": document, "upsert": True}


def copy_summary(records: Collection[CollectionRecord]) -> str:
    """Return a sentence with the number of copied collections, called partitions, as log tools for mongosync expect."""
    done = sum(each.status is CopyStatus.DONE for each in records)
    return f"Completed writing {done} / {len(records)} partitions to destination cluster"


class Registry:
    """The records of the source's collections, by UUID and by the name on the destination.

    The registry changes during the whole sync: for example, the copy and DDL events change it. Every change is saved
    before it is visible. `reversals` is the number of reversals so far: each direction has its own registry. Every
    method that loads, saves or deletes records raises the errors of `Rows`.
    """

    def __init__(
        self, metadata: Metadata, writer: ClusterWriter, reversals: int, stop: StopToken
    ) -> None:
        self._rows = Rows(metadata, writer, collections_of(reversals), stop)
        self._reversals = reversals
        self._lock = threading.Lock()  # guards _records and _holders
        # Held by threads that read records and then save or load them, so that no change in between is lost.
        self.redefining = threading.RLock()
        self._records: dict[bytes, CollectionRecord] = {}
        self._holders: dict[Namespace, bytes] = {}
        self.reload(stop)

    def reload(self, stop: StopToken) -> None:
        """Load the saved records again, because other instances save them, too. Raises the driver's errors."""
        with self.redefining:
            documents = replace(self._rows, stop=stop).newest()
            records = [_collection_record(rawbson.decode_definition(each)) for each in documents]
            with self._lock:
                self._records = {record.uuid: record for record in records}
                self._holders = {record.definition.namespace: record.uuid for record in records}

    def get(self, uuid: bytes) -> CollectionRecord | None:
        with self._lock:
            return self._records.get(uuid)

    def at(self, namespace: Namespace) -> CollectionRecord | None:
        """Return the record of the collection with this name on the destination; None if there is none."""
        with self._lock:
            uuid = self._holders.get(namespace)
            return None if uuid is None else self._records[uuid]

    def __iter__(self) -> Iterator[CollectionRecord]:
        with self._lock:
            return iter(list(self._records.values()))

    def change(self, record: CollectionRecord, **changes: Any) -> CollectionRecord:
        """Set the fields given as keyword arguments in the collection's newest record, save the record, and return it.

        If the collection has no record yet, `record` is used. Threads may change different fields of a record at the
        same time.
        """
        with self.redefining:
            changed = replace(self.get(record.uuid) or record, **changes)
            self._save_all([(self.get(record.uuid), changed)])
            return changed

    def change_all(self, changes: Iterable[tuple[CollectionRecord, dict[str, Any]]]) -> None:
        """Change fields of many records, and save these records with few commands.

        `changes` contains pairs of a record and its new field values. The newest record of each collection is changed.
        """
        with self.redefining:
            known = [(self.get(each.uuid) or each, new) for each, new in changes]
            self._save_all([(old, replace(old, **new)) for old, new in known])

    def save(self, record: CollectionRecord) -> None:
        """Save the record. A saved record with the same UUID is replaced."""
        self._save_all([(None, record)])

    def save_all(self, records: Iterable[CollectionRecord]) -> None:
        """Save many records with few commands. Saved records with the same UUIDs are replaced."""
        self._save_all([(None, each) for each in records])

    def _save_all(
        self, changes: Sequence[tuple[CollectionRecord | None, CollectionRecord]]
    ) -> None:
        """Save the new record of each pair (old record, new record). If the old record is None, save all fields."""
        with self.redefining:
            statements = [_statement(old, new) for old, new in changes]
            self._rows.save(statements)
            with self._lock:
                for _, record in changes:
                    self._release_name(record.uuid)
                    self._records[record.uuid] = record
                    self._holders[record.definition.namespace] = record.uuid

    def save_next(self, records: Iterable[CollectionRecord]) -> None:
        """Replace the saved records of the registry that the sync will use after its next reversal.

        The registry that is in use now does not change.
        """
        rows = replace(self._rows, name=collections_of(self._reversals + 1))
        rows.delete_all({})
        rows.save([_statement(None, each) for each in records])

    def remove(self, record: CollectionRecord) -> None:
        with self.redefining:
            self._rows.delete([Binary(record.uuid, 4)])
            with self._lock:
                self._release_name(record.uuid)
                del self._records[record.uuid]

    def _release_name(self, uuid: bytes) -> None:
        old = self._records.get(uuid)
        if old is not None and self._holders.get(old.definition.namespace) == uuid:
            del self._holders[old.definition.namespace]
