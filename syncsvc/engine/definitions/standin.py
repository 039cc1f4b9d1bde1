"""Builds relaxed definitions (stand-ins) of collections for the time of a sync, and commands to restore the originals.

During the copy and change event application, the destination passes through states that the source never had. So in a
stand-in, unique indexes are not unique, documents never expire, hidden indexes are visible, and capped collections are
very large. The saved record of a collection always contains the original definition, from which the commit restores
it. When a reversal makes the source the destination, the definitions of its collections are relaxed in place.

This module sends no commands: it only builds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bson.int64 import Int64

from syncsvc.rules import sharding
from syncsvc.rules.deferral import deferred_names, earlier_names
from verifier.cluster.specification import CollectionSpec, Document, Kind, same_index, without

# Limits that are not reached in practice: the largest expireAfterSeconds that the server accepts (68 years), and a
# petabyte.
NEVER_SECONDS = 2147483647
CAPPED_ROOM = Int64(1 << 50)

_EXPIRES = "expireAfterSeconds"

Command = dict[str, Any]


def supported(definition: CollectionSpec) -> CollectionSpec:
    """Return the definition with an index that supports its shard key, adding one if necessary.

    An index is added unless the index on `_id`, or an index of the definition that is not deferred (see
    `deferred_names`), supports the key. The definition of an unsharded collection is returned unchanged.
    """
    if not definition.shard_key:
        return definition
    if sharding.is_served(definition.shard_key, _built(definition), definition.collated):
        return definition
    index = sharding.support(definition)
    return replace(definition, indexes={**definition.indexes, index["name"]: index})


def serving(definition: CollectionSpec) -> Document | None:
    """Return the index to create before a collection is sharded; None if only the index on `_id` supports the key.

    The result is the relaxed form of an index that supports the shard key. If the shard key is unique, the result is
    unique, too, because the server requires that; it must be `weakened` once the collection is sharded.
    """
    key = definition.shard_key
    assert key is not None
    found = (each for each in _built(supported(definition)) if sharding.serves(each, key))
    index = next(found, None)
    if index is None:
        return None
    unique = {"unique": True} if key["unique"] else {}
    return {**_stand_in_index(index), **unique}


def weakened(collection: str, index: Document) -> Command:
    """Return the collMod command that makes a unique index of a collection accept duplicates."""
    return _modify(collection, index, forceNonUnique=True)


def stand_in(definition: CollectionSpec) -> CollectionSpec:
    """Return the relaxed definition that a collection has on the destination until the commit.

    Deferred indexes (see `deferred_names`) are left out. The definition of a view is returned unchanged.
    """
    if definition.kind is Kind.VIEW:
        return definition
    definition = supported(definition)
    indexes = {index["name"]: _stand_in_index(index) for index in _built(definition)}
    return replace(definition, options=_stand_in_options(definition), indexes=indexes)


def _stand_in_options(definition: CollectionSpec) -> Document:
    # Servers refuse the deprecated `autoIndexId` together with `idIndex`, which replaces it.
    dropped = {"max", _EXPIRES, "temp", "autoIndexId"}
    options = {name: value for name, value in definition.options.items() if name not in dropped}
    return {**options, "size": CAPPED_ROOM} if definition.capped else options


def _stand_in_index(index: Document) -> Document:
    dropped = {"unique", "prepareUnique", "hidden"}
    plain = {name: value for name, value in index.items() if name not in dropped}
    if _EXPIRES in plain:
        plain[_EXPIRES] = NEVER_SECONDS
    return plain


def creatable(index: Document, collated: bool) -> Document:
    """Return an index in the form that `createIndexes` accepts.

    `collated` is True if the collection of the index has a collation. `listIndexes` shows no collation for an index
    with simple collation. If `createIndexes` got none, the index would inherit the collation of the collection. An
    index of the old format (`v: 1`) never has a collation, and inherits none.
    """
    if collated and "collation" not in index and index.get("v", 2) > 1:
        return {**index, "collation": {"locale": "simple"}}
    return index


def preparations(definition: CollectionSpec) -> Iterator[Command]:
    """Yield the collMod commands that restore a collection's definition, except uniqueness and expiration.

    The commands must run before users may write. Unique indexes become `prepareUnique`: from then on, the server
    refuses new duplicates. Deferred indexes (see `deferred_names`) are not built yet.
    """
    name = definition.namespace.collection
    if definition.capped:
        yield {"collMod": name, "cappedSize": definition.options["size"]}
        if definition.options.get("max"):
            yield {"collMod": name, "cappedMax": definition.options["max"]}
    for index in _built(supported(definition)):
        if index.get("unique") or index.get("prepareUnique"):
            yield _modify(name, index, prepareUnique=True)
        if index.get("hidden"):
            yield _modify(name, index, hidden=True)


def prepared(definition: CollectionSpec) -> CollectionSpec:
    """Return the definition that a collection has once the commands of `preparations` have run.

    These commands are the first step of the cut-over. Indexes that will be unique are still `prepareUnique`, documents
    never expire, and deferred indexes are missing. Later steps of the cut-over change this.
    """
    built = _built(supported(definition))
    indexes = {index["name"]: _prepared_index(index) for index in built}
    options = {name: definition.options[name] for name in definition.options if name != _EXPIRES}
    return replace(definition, options=options, indexes=indexes)


def _prepared_index(index: Document) -> Document:
    changed = {name: index[name] for name in index if name != "unique"}
    if index.get("unique"):
        changed["prepareUnique"] = True
    if _EXPIRES in index:
        changed[_EXPIRES] = NEVER_SECONDS
    return changed


def weakenings(definition: CollectionSpec) -> Iterator[Command]:
    """Yield the commands that relax the definition of a collection to its stand-in, without rebuilding any index.

    Deferred indexes (see `deferred_names`) are dropped.
    """
    name = definition.namespace.collection
    # Drop each deferred index before its unique counterpart stops being unique: no server accepts both then.
    for deferred in sorted(deferred_names(definition)):
        yield {"dropIndexes": name, "index": deferred}
    if definition.capped:
        yield {"collMod": name, "cappedSize": CAPPED_ROOM}
        if definition.options.get("max"):
            yield {"collMod": name, "cappedMax": -1}
    if _EXPIRES in definition.options:
        yield {"collMod": name, _EXPIRES: "off"}
    for index in _built(definition):
        if index.get("unique"):
            yield weakened(name, index)
        if index.get("prepareUnique"):
            yield _modify(name, index, prepareUnique=False)
        if _EXPIRES in index:
            yield _modify(name, index, expireAfterSeconds=NEVER_SECONDS)
        if index.get("hidden"):
            yield _modify(name, index, hidden=False)


def expirations(definition: CollectionSpec, present: CollectionSpec) -> Iterator[Command]:
    """Yield the collMod commands that restore the expiration of documents, except that of deferred indexes.

    `present` is the definition on the destination now. An option or index that does not have the stand-in's value there
    is left unchanged, because users have changed it.
    """
    name = definition.namespace.collection
    if _EXPIRES in definition.options and _EXPIRES not in present.options:
        yield {"collMod": name, _EXPIRES: definition.options[_EXPIRES]}
    for index in _built(supported(definition)):
        found = present.indexes.get(index["name"], {})
        if _EXPIRES in index and found.get(_EXPIRES) == NEVER_SECONDS:
            yield _modify(name, index, expireAfterSeconds=index[_EXPIRES])


def is_modifiable(found: Document, wanted: Document) -> bool:
    """Return whether the index `found` equals `wanted`, an index of a stand-in, or would after `modifications`.

    collMod can add or change the expiration of an index, but not remove it.
    """
    changed = {**found, _EXPIRES: wanted[_EXPIRES]} if _EXPIRES in wanted else found
    return same_index(without(changed, {"hidden"}), wanted)


def modifications(collection: str, found: Document, wanted: Document) -> Iterator[Command]:
    """Yield the collMod commands that turn the index `found` into `wanted`; it must be modifiable (`is_modifiable`)."""
    if found.get("hidden"):
        yield _modify(collection, wanted, hidden=False)
    if _EXPIRES in wanted and found.get(_EXPIRES) != wanted[_EXPIRES]:
        yield _modify(collection, wanted, expireAfterSeconds=wanted[_EXPIRES])


def conversions(definition: CollectionSpec) -> Iterator[Command]:
    """Yield the collMod commands that make the unique indexes of `definition`, the final definition, unique.

    On the destination, these indexes must already be `prepareUnique` (see `preparations`).
    """
    for index in _built(supported(definition)):
        if index.get("unique"):
            yield _modify(definition.namespace.collection, index, unique=True)


def deferred_indexes(definition: CollectionSpec) -> list[Document]:
    """Return the deferred indexes (see `deferred_names`), in the form that `createIndexes` accepts.

    They must be built after the unique indexes have become unique.
    """
    definition = supported(definition)
    names = sorted(deferred_names(definition))
    return [creatable(definition.indexes[each], definition.collated) for each in names]


def earlier_indexes(definition: CollectionSpec) -> list[Document]:
    """Return the indexes that only an earlier version of this program deferred, as `createIndexes` accepts them.

    They have the form of `prepared`: other steps of the commit make them unique, and restore their expiration.
    """
    definition = supported(definition)
    names = sorted(earlier_names(definition))
    indexes = prepared(definition).indexes
    return [creatable(indexes[each], definition.collated) for each in names]


def _built(definition: CollectionSpec) -> list[Document]:
    deferred = deferred_names(definition)
    return [index for name, index in definition.indexes.items() if name not in deferred]


def _modify(collection: str, index: Document, **change: Any) -> Command:
    return {"collMod": collection, "index": {"name": index["name"], **change}}
