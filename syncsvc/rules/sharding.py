"""Sharding rules of the destination: the collections to shard, their keys, supporting indexes, and range bounds.

A shard key in this module has the form of `CollectionSpec.shard_key`: its `key` and whether it is `unique`. The
functions here have no side effects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import cycle
from typing import Any

import bson
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument

from syncsvc.errors import (
    COLLECTION_NOT_SHARDABLE,
    INVALID_SHARDING_ENTRY,
    SHARD_KEY_INDEX_MISSING,
    UNIQUE_INDEX_INCOMPATIBLE,
)
from verifier.cluster import rawbson
from verifier.cluster.keys import Canonical, canonical
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.rawbson import Element
from verifier.cluster.specification import FILLER, CollectionSpec, Document, Kind
from verifier.runtime.errors import Violation

# The name of a temporary index that supports a shard key while another supporting index is replaced.
SPARE = "syncsvc.spare"

# The longest bound of a range, in bytes.
_LONGEST_BOUND = 1024
_NO_BOUNDS = frozenset({rawbson.ARRAY, rawbson.REGEX, rawbson.MIN_KEY, rawbson.MAX_KEY})

# The maximum number of ranges of one collection that are taken from the source. Each range needs a command.
_MOST_CARRIED = 1000

# A range of a shard key: its lower bound, which it includes, and its upper bound, which it does not.
Range = tuple[Document, Document]
# A range, and the shard of the destination that gets it.
Placement = tuple[Range, str]


def key_of(namespace: Namespace, sharding: Document | None) -> Document | None:
    """Return the shard key that the start option `sharding` requests for a collection.

    Return an empty document if the collection must stay unsharded, and None if the option is not set.
    """
    if sharding is None:
        return None
    for name, fields in _entries(sharding):
        if name == namespace:
            key = {field: direction for each in fields for field, direction in each.items()}
            return {"key": key, "unique": False}
    return {}


def named(sharding: Document) -> list[Namespace]:
    """Return the collections that the entries of the start option `sharding` name, in the order of the entries."""
    return [name for name, _ in _entries(sharding)]


def _entries(sharding: Document) -> Iterator[tuple[Namespace, list[Document]]]:
    for entry in sharding["shardingEntries"]:
        name = Namespace(entry["database"], entry["collection"])
        yield name, entry["shardCollection"]["key"]


def entry_violations(sharding: Document) -> Iterator[Violation]:
    """Yield a violation for each error in the entries of the start option `sharding`.

    Errors are an invalid key, a collection that is not a user collection, and several entries for one collection.
    """
    amounts = Counter(named(sharding))
    for number, (name, fields) in enumerate(_entries(sharding)):
        reasons = list(_reasons_against_key(fields))
        if not is_user_namespace(name):
            reasons.append("the collection is not a user collection")
        if amounts[name] > 1:
            reasons.append("there are several entries for this collection")
        for reason in reasons:
            yield _against_entry(number, name, reason)


def filter_violations(sharding: Document, left_out: Collection[Namespace]) -> Iterator[Violation]:
    """Yield a violation for each entry of the start option `sharding` whose collection the filter excludes.

    `left_out` are the collections that the filter excludes.
    """
    for number, name in enumerate(named(sharding)):
        if name in left_out:
            yield _against_entry(number, name, "the filter excludes it")


def _against_entry(number: int, name: Namespace, reason: str) -> Violation:
    return INVALID_SHARDING_ENTRY, f"sharding.shardingEntries[{number}], {name}: {reason}."


def _reasons_against_key(fields: Sequence[Document]) -> Iterator[str]:
    pairs = [pair for each in fields for pair in each.items()]
    for name, amount in Counter(name for name, _ in pairs).items():
        if amount > 1:
            yield f"the shard key contains {name} more than once"
        parts = name.split(".")
        if not all(parts):
            yield f"the field path {name} has an empty part"
        if any(part.startswith("$") for part in parts):
            yield f"the field path {name} has a part that begins with $"
    for name, direction in pairs:
        if direction == -1:
            yield f"the direction of the field {name} is -1, but the fields of a shard key must be ascending or hashed"
    if sum(direction == "hashed" for _, direction in pairs) > 1:
        yield "the shard key has more than one hashed field"


def violations(definition: CollectionSpec) -> Iterator[Violation]:
    """Yield a violation for each reason why a collection cannot have its shard key; none if it has no shard key.

    A missing supporting index is not such a reason; see `index_violations`. `definition` is the definition that the
    collection must have on the destination; see `indexing.destined`.
    """
    if not definition.shard_key:
        return
    name, key = definition.namespace, definition.shard_key["key"]
    if definition.kind is not Kind.COLLECTION:
        yield COLLECTION_NOT_SHARDABLE, f"{name} is a {definition.kind}, which cannot be sharded."
    elif definition.capped:
        yield COLLECTION_NOT_SHARDABLE, f"{name} is a capped collection, which cannot be sharded."
    for index in definition.indexes.values():
        unique = index.get("unique") or index.get("prepareUnique")
        if unique and not _keeps_unique(index, key):
            yield UNIQUE_INDEX_INCOMPATIBLE, (
                f"The unique index {index['name']} of {name} does not begin with the fields of the shard key: "
                f"{', '.join(key)}."
            )


def _keeps_unique(index: Document, key: Document) -> bool:
    """Return whether servers accept a unique index on a collection with this shard key.

    Servers accept the index if it begins with the fields of the shard key, so that each shard can check uniqueness
    alone, or if it begins with `_id`.
    """
    fields = list(index["key"])
    return fields[0] == "_id" or fields[: len(key)] == list(key)


def index_violations(definition: CollectionSpec, sharding: Document) -> Iterator[Violation]:
    """Yield a violation if a source collection lacks an index that supports the requested shard key.

    Yield nothing if the option `createSupportingIndexes` is true, because the sync then creates the index. Also yield
    nothing for a view or a time-series collection.
    """
    wanted = key_of(definition.namespace, sharding)
    if not wanted or sharding["createSupportingIndexes"] or definition.kind is not Kind.COLLECTION:
        return
    if not is_served(wanted, definition.indexes.values(), definition.collated):
        fields = ", ".join(f"{name}: {direction}" for name, direction in wanted["key"].items())
        yield SHARD_KEY_INDEX_MISSING, (
            f"{definition.namespace} has no index that supports the requested shard key. The index must begin with "
            f"{{{fields}}}, have the simple collation, and must not be a hidden, sparse, partial or wildcard index."
        )


def is_served(shard_key: Document, indexes: Iterable[Document], collated: bool) -> bool:
    """Return whether a collection has an index that supports the shard key.

    `indexes` are the indexes of the collection except the index on `_id`. The index on `_id` supports the shard key
    {_id: 1} unless the collection is `collated`: the index has the collation of the collection, but a shard key needs
    the simple collation.
    """
    by_id = shard_key["key"] == {"_id": 1} and not collated
    return by_id or any(serves(each, shard_key) for each in indexes)


def serves(index: Document, shard_key: Document) -> bool:
    """Return whether the index can support the shard key. A wildcard index cannot.

    A unique shard key needs a unique index. A `prepareUnique` one supports it, too, once the collection is sharded.

    Unpatched versions of MongoDB 7.0 and 8.0 accept a compound wildcard index, and then lose documents in chunk
    migrations (SERVER-103774).
    """
    if {"collation", "partialFilterExpression"} & index.keys():
        return False
    if index.get("sparse") or index.get("hidden"):
        return False
    if any(field == "$**" or field.endswith(".$**") for field in index["key"]):
        return False
    fields, wanted = _fields(index["key"]), _fields(shard_key["key"])
    if shard_key["unique"]:
        return bool(index.get("unique") or index.get("prepareUnique")) and fields == wanted
    ordered = all(
        value == "hashed" or isinstance(value, int | float | Decimal) for _, value in fields
    )
    return ordered and fields[: len(wanted)] == wanted


def _fields(key: Document) -> list[tuple[str, Any]]:
    """Return the fields of an index key, with directions that can be compared across number types."""
    return [
        (name, value.to_decimal() if isinstance(value, Decimal128) else value)
        for name, value in key.items()
    ]


def support(definition: CollectionSpec) -> Document:
    """Return the specification of a new index that supports the shard key, for a collection without such an index.

    `definition` must have a shard key. Servers accept the new index beside the other indexes: its name is unused, and
    its key differs from the keys of the index on `_id` and of hidden indexes.
    """
    assert definition.shard_key is not None
    key = dict(definition.shard_key["key"])
    own = definition.indexes.values()
    # No other index may have the key of the one on `_id`, or the key of a hidden index.
    if key == {"_id": 1} or any(
        _fields(each["key"]) == _fields(key) for each in own if each.get("hidden")
    ):
        key[FILLER] = 1
    name = "_".join(f"{field}_{direction}" for field, direction in key.items())
    while name in definition.indexes:
        name += "_"
    unique = {"unique": True} if definition.shard_key["unique"] else {}
    return {"v": 2, "key": key, "name": name, **unique}


def spare(definition: CollectionSpec) -> Document:
    """Return the specification of a temporary index, named `SPARE`, that supports the shard key of the collection.

    The collection must have a shard key. The temporary index takes the place of the real supporting index while the
    real one is dropped and built again.
    """
    assert definition.shard_key is not None
    return {"v": 2, "key": {**definition.shard_key["key"], SPARE: 1}, "name": SPARE}


def sampled_fields(shard_key: Document) -> list[str]:
    """Return the fields of a shard key whose values `ranges` needs: those before a hashed field; all if none is hashed.

    The list is empty if the first field is hashed: servers then choose the ranges themselves.
    """
    fields = []
    for name, direction in shard_key["key"].items():
        if direction == "hashed":
            break
        fields.append(name)
    return fields


def ranges(shard_key: Document, sample: Sequence[bytes], count: int) -> list[Range]:
    """Divide all values of a shard key into up to `count` ranges with similar numbers of documents, if possible.

    `sample` contains BSON documents with the values of the `sampled_fields`, in the order of the fields. The documents
    must be in the sort order of the server. The ranges are uneven if values are frequent or cannot be bounds.
    """
    lowest: Document = dict.fromkeys(shard_key["key"], MinKey())
    bounds = [lowest]
    cuts: list[list[Canonical]] = []
    fit = [each for each in sample if _can_bound(each)]
    for number in range(1, count if fit else 0):
        row = fit[number * len(fit) // count]
        cut = [canonical(row, each) for each in rawbson.elements(row)]
        if cut not in cuts[-1:]:
            bounds.append({**lowest, **dict(zip(lowest, rawbson.decode(row).values()))})
            cuts.append(cut)
    bounds.append(dict.fromkeys(lowest, MaxKey()))
    return list(zip(bounds, bounds[1:]))


def chunks_of(rows: Sequence[bytes]) -> list[tuple[Range, str]]:
    """Return the chunks that documents of `config.chunks` describe, each with its shard.

    `rows` are all chunks of a collection, in the order of their ranges. If decoding would change the lower bound of a
    chunk, the chunk is joined to the previous one, because the changed bound could be out of order.
    """
    chunks = [RawBSONDocument(each, rawbson.RAW_LENIENT) for each in rows]
    kept = [each for each in chunks if _is_exact(each["min"].raw)]
    ends = [each["min"] for each in kept] + [each["max"] for each in chunks[-1:]]
    bounds = [rawbson.decode(each.raw) for each in ends]
    return [(each, chunk["shard"]) for each, chunk in zip(zip(bounds, bounds[1:]), kept)]


def carried(chunks: Sequence[tuple[Range, str]], shards: Sequence[str]) -> list[Placement]:
    """Return the ranges of the source's chunks, in order, each with its shard on the destination.

    `chunks` are all chunks of a collection with their shards on the source, in the order of their ranges. `shards` are
    the shards of the destination. If the chunks are on as many shards of the source as the destination has, each shard
    of the destination gets the ranges of one shard of the source. Otherwise, or if more than 1,000 ranges would result,
    the chunks are joined to at most 1,000 ranges, which are assigned to the shards in rotation. In the result,
    neighbouring ranges on one shard are joined.
    """
    owners = sorted({owner for _, owner in chunks})
    if len(owners) == len(shards):
        places = dict(zip(owners, shards))
        placed = _joined((each, places[owner]) for each, owner in chunks)
        if len(placed) <= _MOST_CARRIED:
            return placed
    size = -(-len(chunks) // _MOST_CARRIED)
    groups = [chunks[start : start + size] for start in range(0, len(chunks), size)]
    ranges = [(group[0][0][0], group[-1][0][1]) for group in groups]
    return _joined(zip(ranges, cycle(shards)))


def _joined(placed: Iterable[Placement]) -> list[Placement]:
    """Join neighbouring ranges on one shard. `placed` are neighbouring ranges in their order."""
    joined: list[Placement] = []
    for each, shard in placed:
        if joined and joined[-1][1] == shard:
            joined[-1] = (joined[-1][0][0], each[1]), shard
        else:
            joined.append((each, shard))
    return joined


def _can_bound(row: bytes) -> bool:
    """Return whether the values of a sampled BSON document can be the bound of a range.

    Bounds must be short, because the config server stores them. Arrays, regular expressions and field names beginning
    with $ are not allowed. MinKey and MaxKey are not used, because they already bound the first and the last range.
    Values that decoding would change, such as strings that are not UTF-8, could be out of order.
    """
    values = list(rawbson.elements(row))
    if len(row) > _LONGEST_BOUND or _NO_BOUNDS.intersection(each.kind for each in values):
        return False
    return _is_exact(row) and not any(_names_operators(row, each) for each in values)


def _is_exact(raw: bytes) -> bool:
    """Return whether a BSON document has the same bytes after it was decoded and encoded."""
    try:
        return bson.encode(rawbson.decode(raw)) == raw
    except BSONError:
        return False


def _names_operators(raw: bytes, value: Element) -> bool:
    """Return whether the value contains, at any depth, a field name that begins with $."""
    if value.kind not in (rawbson.DOCUMENT, rawbson.ARRAY):
        return False
    fields = rawbson.elements(raw, value.start)
    return any(each.name.startswith(b"$") or _names_operators(raw, each) for each in fields)
