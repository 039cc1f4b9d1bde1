"""Compares all user databases of two clusters, while neither cluster is written to.

The demo and the tests judge the product with this module, so it shares no code with the product.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from types import MappingProxyType
from typing import Any, TypeVar

from pymongo import MongoClient

from syncsvc.sandbox.document_merge import (
    LENIENT,
    RAW,
    AnyCollection,
    any_collection,
    by_id,
    different_names,
    document_differences,
    elements,
    natural,
    order_difference,
)

NOT_COMPARED = frozenset(
    {
        *("admin", "config", "local"),
        *("mongosync_reserved_for_internal_use", "__mdb_internal_syncsvc_verifier"),
    }
)
# The metadata databases of syncs with --syncName begin with this prefix.
_OF_NAMED_SYNCS = "mongosync_reserved_for_internal_use_"
LISTED_DIFFERENCES = 50
MOST_COLLECTIONS = 100_000

T = TypeVar("T")
Client = MongoClient[Any]
Specification = Mapping[str, Any]
ShardKeys = Mapping[str, Specification]

_NO_SHARD_KEYS: ShardKeys = MappingProxyType({})
# The fields of an index without options. An extra index is accepted for a shard key only if it has no other fields.
_PLAIN = frozenset({"v", "key", "name"})


@dataclass(frozen=True)
class Equality:
    """The result of a comparison: the numbers of compared objects, counted on the source, and the differences found.

    `documents` counts the buckets of time-series collections, not their measurements.

    `differences` contains one sentence for each of the first `LISTED_DIFFERENCES` differences. If there are more, a
    last sentence gives their number.
    """

    namespaces: int
    documents: int
    bytes: int
    indexes: int
    views: int
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


@dataclass(frozen=True, order=True)
class _Namespace:
    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"

    def of(self, client: Client) -> AnyCollection:
        return any_collection(client.get_database(self.database, LENIENT), self.name)


Difference = tuple[_Namespace, str]


def compare_clusters(
    source: Client,
    destination: Client,
    shard_keys: ShardKeys = _NO_SHARD_KEYS,
    left_out: Collection[str] = (),
) -> Equality:
    """Compare all user databases, except the namespaces `left_out`, and return the result.

    The clusters must not be written to meanwhile. If only the destination is a sharded cluster, `shard_keys` maps each
    namespace that must be sharded to its `key` and `unique`. Each of these collections may have one extra index, which
    supports its shard key.
    """
    comparison = _Comparison(source, destination, shard_keys, left_out)
    differences = _listed(map(_sentence, comparison.found()))
    counted = comparison.counted
    return Equality(
        namespaces=counted["namespaces"],
        documents=counted["documents"],
        bytes=counted["bytes"],
        indexes=counted["indexes"],
        views=counted["views"],
        differences=differences,
    )


def differences_by_database(
    source: Client, destination: Client, shard_keys: ShardKeys = _NO_SHARD_KEYS
) -> dict[str, tuple[str, ...]]:
    """Return the differences of each user database that differs, as sentences.

    The arguments are as in `compare_clusters`; the sentences of one database are as in `Equality.differences`.
    """
    found = _Comparison(source, destination, shard_keys).found()
    grouped = groupby(found, key=lambda each: each[0].database)
    return {database: _listed(map(_sentence, each)) for database, each in grouped}


class _Comparison:
    """One comparison of two clusters: `found` yields the differences, and counts the compared objects in `counted`."""

    def __init__(
        self,
        source: Client,
        destination: Client,
        shard_keys: ShardKeys,
        left_out: Collection[str] = (),
    ) -> None:
        self.counted: Counter[str] = Counter()
        self._left_out = frozenset(left_out)
        self._source = source
        self._destination = destination
        self._keys = _sharded(source) if source.is_mongos else shard_keys
        self._found_keys = _sharded(destination) if destination.is_mongos else self._keys

    def found(self) -> Iterator[Difference]:
        source, destination = self._compared(self._source), self._compared(self._destination)
        self.counted["namespaces"] = len(source)
        self.counted["views"] = sum(info["type"] == "view" for info in source.values())
        for namespace in sorted(source.keys() | destination.keys()):
            infos = source.get(namespace, {}), destination.get(namespace, {})
            for sentence in self._namespace(namespace, *infos):
                yield namespace, sentence

    def _compared(self, client: Client) -> dict[_Namespace, Specification]:
        found = _namespaces(client).items()
        return {name: info for name, info in found if str(name) not in self._left_out}

    def _namespace(
        self, namespace: _Namespace, left: Specification, right: Specification
    ) -> Iterator[str]:
        if not right:
            yield f"{left['type']} missing on destination"
        elif not left:
            yield f"{right['type']} extra on destination"
        elif left["type"] != right["type"]:
            yield f"{left['type']} on source, {right['type']} on destination"
        else:
            yield from _differing_options(left["options"], right["options"])
            yield from self._content(namespace, left)

    def _content(self, namespace: _Namespace, info: Specification) -> Iterator[str]:
        if info["type"] == "view":
            return
        yield from self._shard_key(str(namespace))
        yield from self._indexes(namespace)
        if info["type"] == "timeseries":
            # Measurements cannot be read in the order of `_id`, but the buckets that hold them can.
            namespace = _Namespace(namespace.database, f"system.buckets.{namespace.name}")
        yield from self._documents(namespace, capped=info["options"].get("capped", False))

    def _shard_key(self, namespace: str) -> Iterator[str]:
        left, right = self._keys.get(namespace), self._found_keys.get(namespace)
        if left is None or right is None:
            if left is not right:
                yield f"sharded on {'source' if right is None else 'destination'} only"
        elif _described(left) != _described(right):
            yield f"shard key differs: {_described(left)} on source, {_described(right)} on destination"

    def _serves_shard_key(self, namespace: _Namespace, index: Specification) -> bool:
        """Return whether the source may lack this index of the destination, because it supports the shard key there."""
        asked = self._found_keys.get(str(namespace))
        if asked is None or self._source.is_mongos or not index.keys() <= _PLAIN:
            return False
        return [*index["key"].items()] == [*asked["key"].items()]

    def _indexes(self, namespace: _Namespace) -> Iterator[str]:
        left, right = self._both(namespace, _indexes)
        self.counted["indexes"] += len(left)
        for name in sorted(left.keys() | right.keys()):
            if name not in right:
                yield f"index {name} missing on destination"
            elif name not in left:
                if not self._serves_shard_key(namespace, right[name]):
                    yield f"index {name} extra on destination"
            elif fields := different_names(elements(left[name]), elements(right[name])):
                yield f"index {name} differs: {', '.join(fields)}"

    def _documents(self, namespace: _Namespace, capped: bool) -> Iterator[str]:
        left, right = self._both(namespace, by_id)
        same = True
        for sentence in document_differences(namespace.of(self._source), left, right):
            same = False
            yield sentence
        self.counted["documents"] += left.documents
        self.counted["bytes"] += left.size
        if capped and same:
            yield from order_difference(*self._both(namespace, natural))

    def _both(self, namespace: _Namespace, read: Callable[[AnyCollection], T]) -> tuple[T, T]:
        return read(namespace.of(self._source)), read(namespace.of(self._destination))


def _namespaces(client: Client) -> dict[_Namespace, Specification]:
    return {
        _Namespace(database, info["name"]): info
        for database in client.list_database_names()
        if database not in NOT_COMPARED and not database.startswith(_OF_NAMED_SYNCS)
        for info in _collections(client, database)
        if not info["name"].startswith("system.")
    }


def _collections(client: Client, database: str) -> list[Specification]:
    # The driver's list_collections() decodes view definitions, which changes values of deprecated types.
    command = {"listCollections": 1, "cursor": {"batchSize": MOST_COLLECTIONS}}
    cursor = client[database].command(command, codec_options=RAW)["cursor"]
    assert cursor["id"] == 0, f"{database} has too many collections to be compared"
    return list(cursor["firstBatch"])


def _sharded(client: Client) -> ShardKeys:
    rows = client.config.collections.find()
    return {row["_id"]: {"key": row["key"], "unique": row["unique"]} for row in rows}


def _described(shard_key: Specification) -> str:
    return f"{dict(shard_key['key'])}{', unique' if shard_key['unique'] else ''}"


def _indexes(collection: AnyCollection) -> dict[str, Specification]:
    # The driver's list_indexes() would decode the filters of partial indexes, see _collections().
    command = {"listIndexes": collection.name}
    cursor = collection.database.command(command, codec_options=RAW)["cursor"]
    return {index["name"]: index for index in cursor["firstBatch"]}


def _differing_options(left: Specification, right: Specification) -> Iterator[str]:
    found = different_names(elements(left), elements(right))
    # The deprecated option `autoIndexId` is not synced. Its effect, the index on `_id`, is compared with the indexes.
    names = [name for name in found if name != "autoIndexId"]
    if names:
        yield f"options differ: {', '.join(names)}"


def _sentence(difference: Difference) -> str:
    namespace, sentence = difference
    return f"{namespace}: {sentence}"


def _listed(differences: Iterable[str]) -> tuple[str, ...]:
    remaining = iter(differences)
    listed = tuple(islice(remaining, LISTED_DIFFERENCES))
    more = sum(1 for _ in remaining)
    return (*listed, f"more differences: {more}") if more else listed
