"""Lists what a cluster holds: collections and views with options, indexes and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bson.binary import Binary
from pymongo.errors import OperationFailure

from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.failures import COMMAND_NOT_SUPPORTED_ON_VIEW, NAMESPACE_NOT_FOUND
from verifier.cluster.filters import Selection
from verifier.cluster.namespace import Namespace, is_user_database, is_user_namespace
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.specification import CollectionSpec, Document, Kind, collection_spec


def _id_index(options: Document, indexes: list[Document]) -> Document:
    """The options with the `_id` index as `create` takes it; clustered collections have none."""
    for index in indexes:
        if index["name"] == "_id_" and not index.get("clustered"):
            return {**options, "idIndex": index}
    return options


def is_id_index(index: Document) -> bool:
    """Whether the index comes with its collection: the one on `_id`, or the order of a clustered collection."""
    return bool(index["name"] == "_id_" or index.get("clustered"))


def _rows(client: Client, database: str, command: dict[str, Any]) -> list[Document]:
    """Return all rows of a listing, exactly: the driver's own helpers change some values, and refuse others."""
    with RawCursor(client, database, command) as cursor:
        return [
            rawbson.decode_definition(row) for page in cursor.pages() for row in page.documents()
        ]


def list_raw(client: Client, database: str, query: Document | None = None) -> list[Document]:
    """The rows of `listCollections` that fit the query. Raises the driver's errors."""
    return _rows(client, database, {"listCollections": 1, "filter": query or {}})


def list_indexes(client: Client, database: str, collection: str | Binary) -> list[Document]:
    """All finished indexes of a collection, by name or UUID, the one on `_id` too; none of one that is gone.

    Raises the driver's errors.
    """
    command = {"listIndexes": collection, "includeBuildUUIDs": True}
    try:
        listed = _rows(client, database, command)
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return []
        raise
    # Builds in progress have a buildUUID: their event comes when they are done, if they ever are.
    return [index for index in listed if "buildUUID" not in index]


def _specification(client: Client, name: Namespace, row: Document) -> CollectionSpec | None:
    """The collection or view of a row; a time-series collection is that of its buckets.

    None where that can be asked by name only, and another collection has the name by now, or none.
    """
    if row["type"] == Kind.VIEW.value:
        return CollectionSpec(name, Kind.VIEW, None, dict(row["options"]))
    uuid = bytes(row["info"]["uuid"])
    # Routers do not take UUIDs here. They let this wait while the collection is renamed, when its shard key may be
    # that of no name for a moment; so this comes first.
    sharded = client.is_mongos
    indexes = list_indexes(client, name.database, name.collection if sharded else Binary(uuid, 4))
    shard_key = _shard_key(client, uuid) if sharded else None
    if sharded and not list_raw(client, *_named(name, uuid)):
        return None
    found = collection_spec(
        name,
        uuid,
        _id_index(dict(row["options"]), indexes),
        {index["name"]: index for index in indexes if not is_id_index(index)},
    )
    return replace(found, shard_key=shard_key)


def _named(name: Namespace, uuid: bytes) -> tuple[str, Document]:
    return name.database, {"name": name.collection, "info.uuid": Binary(uuid, 4)}


def _shard_key(client: Client, uuid: bytes) -> Document:
    """The shard key of that collection, under whichever name the metadata have it; empty where it is not sharded."""
    found = sharded_names(client, {"uuid": Binary(uuid, 4)})
    return found[uuid][1] if found else {}


def sharded_names(
    client: Client, query: Document | None = None
) -> dict[bytes, tuple[Namespace, Document]]:
    """The name and shard key of each sharded collection of a cluster, or of some, by UUID.

    Raises the driver's errors.
    """
    command = {
        "find": "collections",
        "filter": query or {},
        "projection": {"uuid": 1, "key": 1, "unique": 1},
        "readConcern": {"level": "majority"},
    }
    return {
        bytes(row["uuid"]): (
            Namespace(*row["_id"].split(".", 1)),
            {"key": row["key"], "unique": bool(row.get("unique"))},
        )
        for row in _rows(client, "config", command)
    }


def is_sharded(client: Client, uuid: bytes) -> bool:
    """Whether that collection of a sharded cluster is sharded. Raises the driver's errors."""
    return bool(sharded_names(client, {"uuid": Binary(uuid, 4)}))


def _user_rows(client: Client, database: str, query: Document | None) -> dict[Namespace, Document]:
    """The rows of `listCollections`, by name; a time-series collection has a row for itself and one for its buckets."""
    return {Namespace(database, row["name"]): row for row in list_raw(client, database, query)}


def _stored(name: Namespace, rows: dict[Namespace, Document]) -> Namespace:
    """Where what has that name keeps its documents: its row tells more than the one of a time-series collection."""
    return name.buckets if rows[name]["type"] == Kind.TIME_SERIES.value else name


def list_collections(
    client: Client,
    selection: Selection | None = None,
    database: str | None = None,
    kind: Kind | None = None,
) -> Iterator[CollectionSpec]:
    """Every collection and view of the users, of one database or of all, in the order of their names.

    Only what is in the selection, and only those of a kind, where these are given: nothing else is looked at closely.
    Through a router, what loses its name meanwhile is left out.
    """
    databases = client.list_database_names() if database is None else [database]
    query = None if kind is None else {"type": kind.value}
    for each in sorted(filter(is_user_database, databases)):
        rows = _user_rows(client, each, query)
        names = set(filter(is_user_namespace, rows))
        for name in sorted(names if selection is None else selection.of(names)):
            stored = _stored(name, rows)
            found = _specification(client, stored, rows[stored]) if stored in rows else None
            if found is not None:
                yield found


def list_names(client: Client) -> dict[Namespace, Kind]:
    """The names of all collections and views of the users, and of which kind each is. Raises the driver's errors."""
    names: dict[Namespace, Kind] = {}
    for database in filter(is_user_database, client.list_database_names()):
        rows = _user_rows(client, database, None)
        names.update((name, Kind(rows[name]["type"])) for name in filter(is_user_namespace, rows))
    return names


def list_uuids(client: Client) -> dict[Namespace, bytes]:
    """The UUID of every collection of the users, that of its buckets for a time series. Raises the driver's errors."""
    uuids: dict[Namespace, bytes] = {}
    for database in filter(is_user_database, client.list_database_names()):
        rows = _user_rows(client, database, None)
        for name in filter(is_user_namespace, rows):
            row = rows.get(_stored(name, rows), {})
            if "uuid" in row.get("info", {}):
                uuids[name] = bytes(row["info"]["uuid"])
    return uuids


def find_named(client: Client, name: Namespace) -> CollectionSpec | None:
    """The collection or view that has that name now. Raises the driver's errors."""
    query = {"name": {"$in": [name.collection, name.buckets.collection]}}
    found = None
    while found is None:
        rows = _user_rows(client, name.database, query)
        if name not in rows or _stored(name, rows) not in rows:
            return None
        found = _specification(client, _stored(name, rows), rows[_stored(name, rows)])
    return found


def find_collection(client: Client, database: str, uuid: bytes) -> CollectionSpec | None:
    """The collection with that UUID under the name that it has now; None when it is gone."""
    found = None
    # Again where it was renamed while a router was asked.
    while found is None:
        row = next(iter(list_raw(client, database, {"info.uuid": Binary(uuid, 4)})), None)
        if row is None:
            return None
        found = _specification(client, Namespace(database, row["name"]), row)
    return found


def find_time_series(client: Client, namespace: Namespace) -> bytes | None:
    """The UUID of the time-series collection of that name, that of its buckets; None when there is none."""
    found = find_named(client, namespace)
    return found.uuid if found is not None and found.kind is Kind.TIME_SERIES else None


@dataclass(frozen=True)
class Size:
    """What a collection takes by its statistics: bytes of its documents, and bytes on disk of these and each index."""

    documents: int = 0
    bytes: int = 0
    on_disk: int = 0
    indexes: Mapping[str, int] = field(default_factory=dict)


def size_of(client: Client, namespace: Namespace) -> int:
    """The bytes of a collection's documents by its statistics; zero of one that is gone, or a view by now."""
    return measure(client, namespace).bytes


def measure(client: Client, namespace: Namespace) -> Size:
    """The size of a collection; nothing of one that is gone, or a view by now. Raises the driver's errors."""
    pipeline = [{"$collStats": {"storageStats": {"scale": 1}}}]
    database = client[namespace.database]
    # Index names need not be UTF-8.
    collection = database.get_collection(namespace.collection, rawbson.DECODE_OPTIONS)
    try:
        rows = list(collection.aggregate(pipeline))
    except OperationFailure as error:
        if error.code in (NAMESPACE_NOT_FOUND, COMMAND_NOT_SUPPORTED_ON_VIEW):
            return Size()
        raise
    # One row a shard.
    found = [row["storageStats"] for row in rows]
    indexes: Counter[str] = Counter()
    for each in found:
        indexes.update(each["indexSizes"])
    return Size(
        # Of a time-series collection, its buckets are what is copied.
        documents=sum(
            int(each["count"] if "count" in each else each["timeseries"]["bucketCount"])
            for each in found
        ),
        bytes=sum(int(each["size"]) for each in found),
        on_disk=sum(int(each["storageSize"]) for each in found),
        indexes=indexes,
    )
