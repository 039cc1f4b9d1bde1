"""What stands in for a collection's options and indexes while a sync runs, and how the real thing is put back. Pure.

During copy and replay the destination passes through states that the source never had. So unique indexes are plain,
TTL never fires, hidden indexes are visible, capped collections have room. What is put back comes from the saved record
of the collection, which always holds the true definition. A source that becomes the destination holds the real thing:
it is weakened to its stand-in in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bson.int64 import Int64

from syncsvc import shard_rules
from verifier.cluster.specification import CollectionSpec, Document, Kind

# Never reached: the largest expireAfterSeconds that the server takes, and a petabyte.
NEVER_SECONDS = 2147483647
CAPPED_ROOM = Int64(1 << 50)

Command = dict[str, Any]


def supported(definition: CollectionSpec) -> CollectionSpec:
    """The definition with an index that serves its shard key, where none of its own does before users write."""
    if not definition.shard_key:
        return definition
    if shard_rules.is_served(definition.shard_key, _built(definition), definition.collated):
        return definition
    index = shard_rules.support(definition)
    return replace(definition, indexes={**definition.indexes, index["name"]: index})


def serving(definition: CollectionSpec) -> Document | None:
    """The index to shard the collection with, as it is then; None for the one on `_id`."""
    key = definition.shard_key
    assert key is not None
    found = (each for each in _built(supported(definition)) if shard_rules.serves(each, key))
    index = next(found, None)
    if index is None or key["unique"]:
        # The server asks for it to be unique. It is weakened when the collection is sharded.
        return index
    return _stand_in_index(index)


def weakened(collection: str, index: Document) -> Command:
    """The command that lets a unique index have duplicates."""
    return _modify(collection, index, forceNonUnique=True)


def stand_in(definition: CollectionSpec) -> CollectionSpec:
    """The definition that the destination has until commit."""
    if definition.kind is Kind.VIEW:
        return definition
    definition = supported(definition)
    indexes = {
        name: _stand_in_index(index)
        for name, index in definition.indexes.items()
        if name not in deferred_names(definition)
    }
    return replace(definition, options=_stand_in_options(definition), indexes=indexes)


def _stand_in_options(definition: CollectionSpec) -> Document:
    dropped = {"max", "expireAfterSeconds", "temp"}
    options = {name: value for name, value in definition.options.items() if name not in dropped}
    return {**options, "size": CAPPED_ROOM} if definition.capped else options


def _stand_in_index(index: Document) -> Document:
    dropped = {"unique", "prepareUnique", "hidden"}
    plain = {name: value for name, value in index.items() if name not in dropped}
    if "expireAfterSeconds" in plain:
        plain["expireAfterSeconds"] = NEVER_SECONDS
    return plain


def deferred_names(definition: CollectionSpec) -> frozenset[str]:
    """The indexes that cannot be built until commit, because without `unique` they equal another one.

    Of two such, the unique one is built first: the server allows a plain one beside it, not the other way round.
    """
    seen: list[list[Any]] = []
    deferred = set()
    for index in sorted(definition.indexes.values(), key=lambda each: not each.get("unique")):
        signature = [
            list(index["key"].items()),
            index.get("collation"),
            bool(index.get("sparse")),
            # Servers take filters of different form for one; to wait without need does no harm.
            "partialFilterExpression" in index,
            index.get("wildcardProjection"),
        ]
        if signature in seen:
            deferred.add(index["name"])
        seen.append(signature)
    return frozenset(deferred)


def creatable(index: Document, collated: bool) -> Document:
    """The index as `createIndexes` takes it.

    An index of simple collation lists no collation, but would inherit the one of its collection.
    """
    if collated and "collation" not in index:
        return {**index, "collation": {"locale": "simple"}}
    return index


def preparations(definition: CollectionSpec) -> Iterator[Command]:
    """The collMod commands that put back all but uniqueness, for which new duplicates are refused from then on."""
    name = definition.namespace.collection
    if definition.capped:
        yield {"collMod": name, "cappedSize": definition.options["size"]}
        if definition.options.get("max"):
            yield {"collMod": name, "cappedMax": definition.options["max"]}
    if "expireAfterSeconds" in definition.options:
        yield {"collMod": name, "expireAfterSeconds": definition.options["expireAfterSeconds"]}
    for index in _built(supported(definition)):
        if index.get("unique") or index.get("prepareUnique"):
            yield _modify(name, index, prepareUnique=True)
        if "expireAfterSeconds" in index:
            yield _modify(name, index, expireAfterSeconds=index["expireAfterSeconds"])
        if index.get("hidden"):
            yield _modify(name, index, hidden=True)


def prepared(definition: CollectionSpec) -> CollectionSpec:
    """What a collection of this definition is between the preparations and the conversions."""
    built = _built(supported(definition))
    indexes = {index["name"]: _prepared_index(index) for index in built}
    return replace(definition, indexes=indexes)


def _prepared_index(index: Document) -> Document:
    if not index.get("unique"):
        return index
    return {**{name: index[name] for name in index if name != "unique"}, "prepareUnique": True}


def weakenings(definition: CollectionSpec) -> Iterator[Command]:
    """The commands that make of a real collection its stand-in, without building any index anew."""
    name = definition.namespace.collection
    # Before the indexes that they equal are plain: no server has both.
    for deferred in sorted(deferred_names(definition)):
        yield {"dropIndexes": name, "index": deferred}
    if definition.capped:
        yield {"collMod": name, "cappedSize": CAPPED_ROOM}
        if definition.options.get("max"):
            yield {"collMod": name, "cappedMax": -1}
    if "expireAfterSeconds" in definition.options:
        yield {"collMod": name, "expireAfterSeconds": "off"}
    for index in _built(definition):
        if index.get("unique"):
            yield weakened(name, index)
        if index.get("prepareUnique"):
            yield _modify(name, index, prepareUnique=False)
        if "expireAfterSeconds" in index:
            yield _modify(name, index, expireAfterSeconds=NEVER_SECONDS)
        if index.get("hidden"):
            yield _modify(name, index, hidden=False)


def conversions(definition: CollectionSpec) -> Iterator[Command]:
    """The collMod commands that make prepared indexes unique."""
    for index in _built(supported(definition)):
        if index.get("unique"):
            yield _modify(definition.namespace.collection, index, unique=True)


def waiting(definition: CollectionSpec) -> list[Document]:
    """The indexes that had to wait for the conversions, as `createIndexes` takes them."""
    definition = supported(definition)
    names = sorted(deferred_names(definition))
    return [creatable(definition.indexes[each], definition.collated) for each in names]


def _built(definition: CollectionSpec) -> list[Document]:
    deferred = deferred_names(definition)
    return [index for name, index in definition.indexes.items() if name not in deferred]


def _modify(collection: str, index: Document, **change: Any) -> Command:
    return {"collMod": collection, "index": {"name": index["name"], **change}}
