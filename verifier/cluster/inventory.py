"""Lists the contents of a cluster: collections and views with options, indexes and sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.failures import (
    COMMAND_NOT_SUPPORTED_ON_VIEW,
    NAMESPACE_NOT_FOUND,
    QUERY_FEATURE_NOT_ALLOWED,
    UNAUTHORIZED,
    UNKNOWN_STAGE,
)
from verifier.cluster.filters import Selection
from verifier.cluster.namespace import (
    BUCKETS_PREFIX,
    Namespace,
    differ_in_case,
    is_user_database,
    is_user_namespace,
)
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.specification import (
    CollectionSpec,
    Document,
    Kind,
    collection_spec,
    without,
)

# Selects the sharded collections in `config.collections`. From MongoDB 8.0 on, `config.collections` also lists
# unsharded collections that were moved away from the primary shard of their database (moveCollection,
# unshardCollection).
SPLITTABLE: Document = {"unsplittable": {"$ne": True}}

# The fields of `$collStats` that `measure` needs.
_STATISTICS = ("count", "indexSizes", "size", "storageSize", "timeseries.bucketCount")

# The options of indexes that `listIndexes` does not remove; it may replace the values of `expireAfterSeconds` and of
# those in `_FLAGS`. Source: the server's `index_key_validate.cpp`. An option that is missing here causes no error, but
# costs time: a separate command lists the indexes of each collection with such an index.
_FLAGS = frozenset({"background", "clustered", "dropDups", "prepareUnique", "sparse", "unique"})
_INDEX_OPTIONS = _FLAGS.union(
    ("key", "name", "v", "hidden", "collation", "expireAfterSeconds", "partialFilterExpression"),
    ("default_language", "language_override", "textIndexVersion", "weights", "storageEngine"),
    ("2dsphereIndexVersion", "coarsestIndexedLevel", "finestIndexedLevel", "bits", "min", "max"),
    ("bucketSize", "columnstoreProjection", "originalSpec", "wildcardProjection"),
)
# The options of the index on `_id` that the command `create` accepts.
_ID_INDEX_OPTIONS = ("v", "key", "name", "collation")
_LONGEST_TTL = 2**31 - 1


def _id_index(options: Document, indexes: list[Document]) -> Document:
    """Return the options of a collection, with the index on `_id` as the field `idIndex` of the command `create`.

    Options that old servers have accepted for this index, such as `unique`, are left out, because `create` refuses them
    and they have no effect. If there is no index on `_id`, as in a clustered collection, the options are returned
    unchanged.
    """
    for index in indexes:
        if index["name"] == "_id_" and not index.get("clustered"):
            accepted = {name: index[name] for name in _ID_INDEX_OPTIONS if name in index}
            return {**options, "idIndex": accepted}
    return options


def is_id_index(index: Document) -> bool:
    """Return whether the server creates this index with its collection: the index on `_id`, or the clustered index."""
    return bool(index["name"] == "_id_" or index.get("clustered"))


def _rows(client: Client, database: str, command: dict[str, Any]) -> list[Document]:
    """Run a command that opens a cursor, and return all its rows, decoded by `decode_definition`.

    Raises the driver's errors.

    The driver's own helpers are not used, because they would change some values and refuse others.
    """
    with RawCursor(client, database, command) as cursor:
        return [
            rawbson.decode_definition(row) for page in cursor.pages() for row in page.documents()
        ]


def list_raw(client: Client, database: str, query: Document | None = None) -> list[Document]:
    """Return the rows of `listCollections` that match the query, or all rows if it is None. Raises driver errors."""
    return _rows(client, database, {"listCollections": 1, "filter": query or {}})


def list_indexes(client: Client, database: str, collection: str | Binary) -> list[Document]:
    """Return all finished indexes of a collection, including the index on `_id`.

    `collection` is a name or a UUID. Return an empty list if there is no such collection. Raises the driver's errors.
    """
    command = {"listIndexes": collection, "includeBuildUUIDs": True}
    try:
        listed = _rows(client, database, command)
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return []
        raise
    # Index builds in progress have a buildUUID. A build causes a change event only when it is complete.
    return [index for index in listed if "buildUUID" not in index]


class IndexCatalog:
    """The finished indexes of all collections at one moment, read by one command.

    The indexes are kept as BSON and decoded by `of`. The catalog is empty if the server cannot list all indexes with
    one command: on mongos, if the version or featureCompatibilityVersion is older than 6.0, or if the user lacks the
    privilege. The constructor raises the driver's errors.
    """

    def __init__(self, client: Client) -> None:
        self._entries: dict[bytes, bytes] = {}
        if client.is_mongos:
            # Each shard would list its own part.
            return
        stages = [{"$listCatalog": {}}, {"$match": {"type": "collection"}}]
        command = {"aggregate": 1, "pipeline": stages, "cursor": {}}
        try:
            with RawCursor(client, "admin", command) as cursor:
                for page in cursor.pages():
                    for row in page.documents():
                        entry = RawBSONDocument(bytes(row), rawbson.RAW_LENIENT)["md"]
                        self._entries[bytes(entry["options"]["uuid"])] = entry.raw
        except OperationFailure as error:
            if error.code not in (UNKNOWN_STAGE, QUERY_FEATURE_NOT_ALLOWED, UNAUTHORIZED):
                raise

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, uuid: bytes) -> list[Document] | None:
        """Return the finished indexes of the collection with this UUID; None if the caller must list them.

        The caller must list them if the catalog lacks the collection, or if an index has options that `listIndexes` may
        repair. The clustered index of a clustered collection is left out.
        """
        entry = self._entries.get(uuid)
        if entry is None:
            return None
        listed = rawbson.decode_definition(entry)["indexes"]
        # Servers before 4.4 have saved the field `ns`.
        indexes = [without(each["spec"], ("ns",)) for each in listed if each["ready"]]
        return [*map(_converted, indexes)] if all(map(_is_sound, indexes)) else None


def _converted(index: Document) -> Document:
    """Return an index that `_is_sound` accepts, as `listIndexes` returns it: with flags as bool, and the TTL as int."""
    converted = {**index, **{name: bool(index[name]) for name in _FLAGS & index.keys()}}
    if "expireAfterSeconds" in index:
        converted["expireAfterSeconds"] = int(index["expireAfterSeconds"])
    return converted


def _is_sound(index: Document) -> bool:
    """Return whether `listIndexes` returns an index as the catalog contains it, apart from the types of flags and TTL.

    Old servers have accepted unknown options, flags that are not numbers, and any TTL. `listIndexes` removes or
    replaces these, because `createIndexes` would refuse them.
    """
    flags = [index[each] for each in _FLAGS & index.keys()]
    seconds = index.get("expireAfterSeconds", 0)
    return (
        index.keys() <= _INDEX_OPTIONS
        and all(isinstance(each, int | float) for each in flags)
        and isinstance(seconds, int | float)
        and 0 <= seconds <= _LONGEST_TTL
    )


def _definitions(
    client: Client, rows: Mapping[Namespace, Document], catalog: IndexCatalog | None = None
) -> Iterator[CollectionSpec]:
    """Yield the collections and views that rows of `listCollections` describe, with their shard keys.

    `rows` maps names to rows; a row of buckets describes their time-series collection. On a sharded cluster, all rows
    must be from one database. The indexes are taken from `catalog`; if it is None or its `of` returns None, they are
    listed now.

    On a sharded cluster, collections that no longer have their names are left out: mongos lists indexes only by name,
    so the listed indexes could belong to other collections.
    """
    # Read `is_mongos` only once, not for each collection: the driver selects a server each time.
    by_name = client.is_mongos
    listed = ((name, _unsharded(client, name, row, catalog, by_name)) for name, row in rows.items())
    yield from _with_shard_keys(client, dict(listed)) if by_name else (each for _, each in listed)


def _unsharded(
    client: Client, name: Namespace, row: Document, catalog: IndexCatalog | None, by_name: bool
) -> CollectionSpec:
    """Return the collection or view that a row of `listCollections` describes, without its shard key.

    If `by_name` is True, list its indexes by its name instead of its UUID, because mongos does not accept a UUID.
    """
    if row["type"] == Kind.VIEW.value:
        return CollectionSpec(name, Kind.VIEW, None, dict(row["options"]))
    uuid = bytes(row["info"]["uuid"])
    indexes = None if catalog is None else catalog.of(uuid)
    if indexes is None:
        key = name.collection if by_name else Binary(uuid, 4)
        indexes = list_indexes(client, name.database, key)
    return collection_spec(
        name,
        uuid,
        _id_index(dict(row["options"]), indexes),
        {index["name"]: index for index in indexes if not is_id_index(index)},
    )


def _with_shard_keys(
    client: Client, listed: Mapping[Namespace, CollectionSpec]
) -> Iterator[CollectionSpec]:
    """Yield the collections and views with their shard keys, except collections that no longer have their names.

    `listed` maps names to the collections and views that were just listed under these names. All of them must be in one
    database of a sharded cluster. All shard keys are read at once, because there may be thousands of collections.
    """
    # During a rename, a shard key belongs to no name for a moment. Before this moment, the collection loses its old
    # name; until the end of the rename, mongos waits before it lists the indexes of the new name. So the keys must be
    # read after the indexes, and before the names.
    stored = {name: each.uuid for name, each in listed.items() if each.uuid is not None}
    uuids = [Binary(uuid, 4) for uuid in stored.values()]
    keys = sharded_names(client, {"uuid": {"$in": uuids}}) if stored else {}
    current = _uuids_of(client, [*stored])
    for name, each in listed.items():
        if each.uuid is None:
            yield each
        elif current.get(name) == each.uuid:
            yield replace(each, shard_key=keys[each.uuid][1] if each.uuid in keys else {})


def _uuids_of(client: Client, names: list[Namespace]) -> dict[Namespace, bytes]:
    """Return the UUIDs of the collections that have these names now, by name. All names are in one database."""
    if not names:
        return {}
    # Query by the names only: with a further condition, the server goes through all collections of the database.
    query = {"name": {"$in": [each.collection for each in names]}}
    rows = _rows_by_name(client, names[0].database, query)
    return {name: bytes(row["info"]["uuid"]) for name, row in rows.items() if "uuid" in row["info"]}


def sharded_names(
    client: Client, query: Document | None = None
) -> dict[bytes, tuple[Namespace, Document]]:
    """Return the name and shard key (`key` and `unique`) of each sharded collection, by UUID.

    `query` selects documents of `config.collections`; if it is None, return all. Raises the driver's errors.
    """
    command = {
        "find": "collections",
        "filter": {**(query or {}), **SPLITTABLE},
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


def primary_shards(client: Client) -> dict[str, Document]:
    """Return the name of the primary shard (`primary`) and the `version` of each database, by the database's name.

    The version changes with the primary shard. The cluster must be a sharded cluster. Raises the driver's errors.
    """
    command = {
        "find": "databases",
        "projection": {"primary": 1, "version": 1},
        "readConcern": {"level": "majority"},
    }
    return {row.pop("_id"): row for row in _rows(client, "config", command)}


def is_sharded(client: Client, uuid: bytes) -> bool:
    """Return whether the collection with this UUID is sharded.

    The cluster must be a sharded cluster. Raises the driver's errors.
    """
    return bool(sharded_names(client, {"uuid": Binary(uuid, 4)}))


def _rows_by_name(
    client: Client, database: str, query: Document | None
) -> dict[Namespace, Document]:
    """Return the rows of `listCollections` for a database that match the query, by name.

    A time-series collection and its buckets each have a row.
    """
    return {Namespace(database, row["name"]): row for row in list_raw(client, database, query)}


def _stored(name: Namespace, rows: dict[Namespace, Document]) -> Namespace:
    """Return the namespace that stores the documents of `name`: for a time-series collection, its buckets.

    `rows` are the rows of `listCollections`, by name; they must include the row of `name`.

    The row of the buckets contains more details than the row of the time-series collection. MongoDB 9.0 can store a
    time-series collection under its own name; its row then has a UUID.
    """
    row = rows[name]
    has_buckets = row["type"] == Kind.TIME_SERIES.value and "uuid" not in row.get("info", {})
    return name.buckets if has_buckets else name


def list_collections(
    client: Client, selection: Selection | None = None, kind: Kind | None = None
) -> Iterator[CollectionSpec]:
    """Yield every user collection and view, in the order of their names.

    `selection` and `kind` restrict the result; `kind` must not be Kind.TIME_SERIES. Only the selected collections
    are queried in detail. On a sharded cluster, a collection that is renamed or dropped during the listing may be left
    out; one that is replaced, as by `movePrimary`, is listed as it is now. Raises the driver's errors, and with a
    `selection`, `Cancelled`.
    """
    query = None if kind is None else {"type": kind.value}
    catalog = None if kind is Kind.VIEW else IndexCatalog(client)
    for each in sorted(filter(is_user_database, client.list_database_names())):
        rows = _rows_by_name(client, each, query)
        names = set(filter(is_user_namespace, rows))
        selected = sorted(names if selection is None else selection.of(names))
        stored = [_stored(name, rows) for name in selected]
        listed = {name: rows[name] for name in stored if name in rows}
        found = {spec.namespace: spec for spec in _definitions(client, listed, catalog)}
        for name in selected:
            # Another collection may have taken the name in the meantime, in particular after `movePrimary`.
            spec = found.get(name) or find_named(client, name)
            if spec is not None and (kind is None or spec.kind is kind):
                yield spec


def list_names(client: Client) -> dict[Namespace, Kind]:
    """Return the kind of each user collection and view, by name. Raises the driver's errors."""
    return {name: kind for name, kind in list_kinds(client).items() if is_user_namespace(name)}


def hidden_time_series(kinds: Mapping[Namespace, Kind]) -> set[Namespace]:
    """Return the names of time series whose measurements are hidden: there are buckets, but no time-series collection.

    `kinds` is the result of `list_kinds`. MongoDB 6.0 creates such buckets if one client inserts into a collection
    while another one creates it as a time series. A regular collection may have the name.
    """
    buckets = (name for name in kinds if name.collection.startswith(BUCKETS_PREFIX))
    return {each.owner for each in buckets if kinds.get(each.owner) is not Kind.TIME_SERIES}


def list_kinds(client: Client) -> dict[Namespace, Kind]:
    """Return the kind of every collection and view in the user databases, including system collections, by name.

    Raises the driver's errors.
    """
    return {
        Namespace(database, row["name"]): Kind(row["type"])
        for database in filter(is_user_database, client.list_database_names())
        for row in _rows(client, database, {"listCollections": 1, "nameOnly": True})
    }


def find_in_other_case(client: Client, database: str) -> str | None:
    """Return the name of a database that differs from `database` only in case; None if the cluster has none.

    An existing database without collections is not found, although it also makes servers refuse to create `database`.
    Raises the driver's errors.
    """
    pattern = {"$regex": f"^{re.escape(database)}$", "$options": "i"}
    listed = client.list_databases(filter={"name": pattern}, nameOnly=True)
    names = (each["name"] for each in listed)
    sharded = client.is_mongos
    return next((each for each in names if differ_in_case(each, database, sharded)), None)


def list_uuids(client: Client, databases: Iterable[str] | None = None) -> dict[Namespace, bytes]:
    """Return the UUID of every user collection, by name; for a time-series collection, the UUID of its buckets.

    Only the given databases are listed; all databases if `databases` is None. Views are left out. Raises the driver's
    errors.
    """
    listed = client.list_database_names() if databases is None else databases
    uuids: dict[Namespace, bytes] = {}
    for database in filter(is_user_database, listed):
        rows = _rows_by_name(client, database, None)
        for name in filter(is_user_namespace, rows):
            row = rows.get(_stored(name, rows), {})
            if "uuid" in row.get("info", {}):
                uuids[name] = bytes(row["info"]["uuid"])
    return uuids


class Snapshot:
    """The collections and views of one cluster, as listed when the object was created.

    Their definitions are kept as BSON and decoded by `find`, to save memory. The snapshot is empty if the server cannot
    list all indexes with one command (`IndexCatalog`). If `IndexCatalog.of` cannot return the indexes of a collection,
    `find` lists its current indexes. The constructor and `find` raise the driver's errors.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._catalog = IndexCatalog(client)
        self._rows: dict[Namespace, bytes] = {}
        if not len(self._catalog):
            return
        for database in filter(is_user_database, client.list_database_names()):
            with RawCursor(client, database, {"listCollections": 1}) as cursor:
                for page in cursor.pages():
                    for row in page.documents():
                        name = RawBSONDocument(bytes(row), rawbson.RAW_LENIENT)["name"]
                        self._rows[Namespace(database, name)] = bytes(row)

    def find(self, name: Namespace) -> CollectionSpec | None:
        """Return the collection or view with this name; None if the snapshot does not contain it.

        If the snapshot is empty, None does not mean that the collection does not exist.
        """
        rows = {
            each: rawbson.decode_definition(self._rows[each])
            for each in (name, name.buckets)
            if each in self._rows
        }
        if name not in rows or _stored(name, rows) not in rows:
            return None
        stored = _stored(name, rows)
        return _unsharded(self._client, stored, rows[stored], self._catalog, by_name=False)


def find_named(client: Client, name: Namespace) -> CollectionSpec | None:
    """Return the collection or view that has this name now; None if there is none. Raises the driver's errors."""
    query = {"name": {"$in": [name.collection, name.buckets.collection]}}
    found = None
    while found is None:
        rows = _rows_by_name(client, name.database, query)
        if name not in rows or _stored(name, rows) not in rows:
            return None
        stored = _stored(name, rows)
        found = next(_definitions(client, {stored: rows[stored]}), None)
    return found


def find_collection(client: Client, database: str, uuid: bytes) -> CollectionSpec | None:
    """Return the collection with this UUID under its current name; None if `database` does not have it.

    Raises the driver's errors.
    """
    found = None
    # Try again if the collection was renamed between two calls to mongos.
    while found is None:
        row = next(iter(list_raw(client, database, {"info.uuid": Binary(uuid, 4)})), None)
        if row is None:
            return None
        found = next(_definitions(client, {Namespace(database, row["name"]): row}), None)
    return found


def find_time_series(client: Client, namespace: Namespace) -> bytes | None:
    """Return the UUID of the buckets of the time-series collection with this name; None if there is none.

    Raises the driver's errors.
    """
    found = find_named(client, namespace)
    return found.uuid if found is not None and found.kind is Kind.TIME_SERIES else None


@dataclass(frozen=True)
class Size:
    """The size of a collection according to its statistics. All sizes are in bytes.

    `documents` is the number of documents, `bytes` their uncompressed size, and `on_disk` their size on disk. `indexes`
    maps the names of the indexes to their sizes. For a time-series collection, each bucket counts as a document.
    `shards` is the number of shards that have the collection.
    """

    documents: int = 0
    bytes: int = 0
    on_disk: int = 0
    indexes: Mapping[str, int] = field(default_factory=dict)
    shards: int = 1


def extent(client: Client, namespace: Namespace) -> Size:
    """Return the number of documents in a collection and their size, according to the server's statistics.

    Both are zero if the name is unused or names a view. On a replica set, the other fields of the Size keep their
    defaults, and this is much cheaper than `measure`, whose `$collStats` also reads the statistics of each index.
    Raises the driver's errors.
    """
    if client.is_mongos:
        return measure(client, namespace)
    try:
        reply = client[namespace.database].command({"dataSize": str(namespace), "estimate": True})
    except OperationFailure as error:
        if error.code in (NAMESPACE_NOT_FOUND, COMMAND_NOT_SUPPORTED_ON_VIEW):
            return Size()
        raise
    return Size(int(reply["numObjects"]), int(reply["size"]))


def measure(client: Client, namespace: Namespace) -> Size:
    """Return the total size of a collection on all shards; zero if the name is unused or names a view.

    Raises the driver's errors.
    """
    # The rest of the statistics takes about 20 kB for each collection.
    wanted = {f"storageStats.{name}": 1 for name in _STATISTICS}
    pipeline: list[Document] = [
        {"$collStats": {"storageStats": {"scale": 1}}},
        {"$project": wanted},
    ]
    command = {"aggregate": namespace.collection, "pipeline": pipeline}
    try:
        rows = _rows(client, namespace.database, command)
    except OperationFailure as error:
        if error.code in (NAMESPACE_NOT_FOUND, COMMAND_NOT_SUPPORTED_ON_VIEW):
            return Size()
        raise
    # One row per shard.
    found = [row["storageStats"] for row in rows]
    indexes: Counter[str] = Counter()
    for each in found:
        indexes.update(each["indexSizes"])
    return Size(
        # For a time-series collection, count the buckets, because the buckets are copied.
        documents=sum(
            int(each["count"] if "count" in each else each["timeseries"]["bucketCount"])
            for each in found
        ),
        bytes=sum(int(each["size"]) for each in found),
        on_disk=sum(int(each["storageSize"]) for each in found),
        indexes=indexes,
        shards=max(1, len(found)),
    )
