"""Definitions of collections, views and indexes as a server lists them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from verifier.cluster.namespace import Namespace

Document = dict[str, Any]

# Follows the fields of a shard key in an index for that key which must not be the same as another one. No document has
# it, or if one has, no harm is done.
FILLER = "syncsvc"


class Kind(Enum):
    COLLECTION = "collection"
    VIEW = "view"
    TIME_SERIES = "timeseries"


@dataclass(frozen=True)
class CollectionSpec:
    """One collection or view.

    `uuid` is None for views, and that of the buckets for a time-series collection, whose `indexes` are those of the
    buckets, too. `options` are those of `listCollections`, with the `_id` index as `idIndex` where there
    is one; `indexes` are the others, as `listIndexes` gives them, by name. In both, expressions (validators, pipelines,
    filters of partial indexes) are RawBSONDocuments. `shard_key` has the `key` and whether it is
    `unique`; it is empty for what is not sharded, and None where the cluster is a replica set.
    """

    namespace: Namespace
    kind: Kind
    uuid: bytes | None = None
    options: Document = field(default_factory=dict)
    indexes: dict[str, Document] = field(default_factory=dict)
    shard_key: Document | None = None

    @property
    def storage(self) -> Namespace:
        """The namespace that holds the documents."""
        return self.namespace.buckets if self.kind is Kind.TIME_SERIES else self.namespace

    @property
    def sharded(self) -> bool:
        return bool(self.shard_key)

    @cached_property
    def capped(self) -> bool:
        return bool(self.options.get("capped"))

    @cached_property
    def collated(self) -> bool:
        """Whether strings compare other than by their bytes in this collection."""
        collation: Document = self.options.get("collation", {})
        return bool(collation.get("locale", "simple") != "simple")


# The options of buckets that are options of their time-series collection; the others come with them.
_TIME_SERIES_OPTIONS = ("timeseries", "expireAfterSeconds", "collation", "storageEngine")


def collection_spec(
    name: Namespace, uuid: bytes, options: Document, indexes: Document
) -> CollectionSpec:
    """The collection of that name; of the name of buckets, their time-series collection."""
    if name.owner == name:
        return CollectionSpec(name, Kind.COLLECTION, uuid, options, indexes)
    told = {each: options[each] for each in _TIME_SERIES_OPTIONS if each in options}
    return CollectionSpec(name.owner, Kind.TIME_SERIES, uuid, told, indexes)


def same_index(left: Document, right: Document) -> bool:
    """Equality of index specifications: the order of the options means nothing, that of all below them does."""
    return left.keys() == right.keys() and all(
        same_document(left[name], right[name]) for name in left
    )


def same_document(left: Any, right: Any) -> bool:
    """Equality with the order of fields and the types of values; as dicts alone, 1 and 1.0 would be equal."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(
            same_document(left[key], right[key]) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_document, left, right))
    # What is not equal to itself is NaN.
    return type(left) is type(right) and bool(left == right or (left != left and right != right))
