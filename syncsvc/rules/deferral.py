"""Finds the deferred indexes of a definition: those that the destination can build only at the commit."""

from __future__ import annotations

from typing import Any

from verifier.cluster.specification import CollectionSpec, Document, Kind


def deferred_names(definition: CollectionSpec) -> frozenset[str]:
    """Return the names of the deferred indexes, which can be built only at the commit.

    A plain index is deferred if it has the same key, collation, `sparse` and `wildcardProjection` as a unique one, and
    both or neither have a partial filter: the server may refuse to build the plain one until the other one has become
    unique. A unique index is never deferred: duplicates must be refused from the moment at which users may write.

    A TTL index of a time-series collection is deferred, too, because servers refuse to change the expiration of such an
    index. Only MongoDB 7.0 and newer have such indexes.
    """
    indexes = definition.indexes.values()
    if definition.kind is Kind.TIME_SERIES:
        return frozenset(each["name"] for each in indexes if "expireAfterSeconds" in each)
    unique = [_signature(each) for each in indexes if each.get("unique")]
    if not unique:
        return frozenset()
    plain = (each for each in indexes if not each.get("unique"))
    return frozenset(each["name"] for each in plain if _signature(each) in unique)


def earlier_names(definition: CollectionSpec) -> frozenset[str]:
    """Return the names of the indexes that only an earlier version of this program deferred.

    If that version began the sync, these indexes may be missing. Of several indexes with the same key, collation,
    `sparse` and `wildcardProjection`, all of them with or all without a partial filter, that version deferred all
    except one. The result includes none of the `deferred_names`.
    """
    seen: list[list[Any]] = []
    names = set()
    for index in sorted(definition.indexes.values(), key=lambda each: not each.get("unique")):
        signature = _signature(index)
        if signature in seen:
            names.add(index["name"])
        seen.append(signature)
    return frozenset(names) - deferred_names(definition)


def _signature(index: Document) -> list[Any]:
    """Return the properties by which a plain index may conflict with an index that will become unique.

    The server refuses a plain index beside an index that will become unique only if both have the same signature. Two
    unique indexes, or two plain ones, may have the same signature: the server tells them apart by their filters.
    """
    return [
        list(index["key"].items()),
        index.get("collation"),
        bool(index.get("sparse")),
        # Do not compare the filters themselves: servers treat some filters of different form as equal, and deferring a
        # plain index without need loses no data.
        "partialFilterExpression" in index,
        index.get("wildcardProjection"),
    ]
