"""Definitions of collections, views and indexes as a server lists them. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from verifier.cluster.namespace import Namespace

Document = dict[str, Any]

# The character with which decoding replaces bytes that are not UTF-8.
_REPLACEMENT = "\ufffd"

# A field that is appended to the key of an index that supports a shard key, if the index must differ from another
# index. Documents are not expected to have this field, but a document that has it does no harm.
FILLER = "syncsvc"


class Kind(Enum):
    """The kind of a collection or view, as `listCollections` names it. `str()` returns a text for messages."""

    COLLECTION = "collection"
    VIEW = "view"
    TIME_SERIES = "timeseries"

    def __str__(self) -> str:
        return "time-series collection" if self is Kind.TIME_SERIES else self.value


@dataclass(frozen=True)
class CollectionSpec:
    """The definition of one collection or view.

    In `options` and `indexes`, validators, stages of pipelines, and filters of partial indexes are RawBSONDocuments.
    """

    namespace: Namespace
    kind: Kind
    # None for a view; for a time-series collection, the UUID of its buckets.
    uuid: bytes | None = None
    # The options as `listCollections` returns them, with the index on `_id` as `idIndex` if there is one.
    options: Document = field(default_factory=dict)
    # All other indexes, by name, as `listIndexes` returns them. For a time-series collection, those of its buckets.
    indexes: dict[str, Document] = field(default_factory=dict)
    # The fields `key` and `unique`. Empty for an unsharded collection; None for a view or on a replica set.
    shard_key: Document | None = None

    @property
    def storage(self) -> Namespace:
        """Return the namespace that stores the documents: for a time-series collection, its buckets."""
        return self.namespace.buckets if self.kind is Kind.TIME_SERIES else self.namespace

    @property
    def sharded(self) -> bool:
        return bool(self.shard_key)

    @cached_property
    def capped(self) -> bool:
        return bool(self.options.get("capped"))

    @cached_property
    def expires(self) -> bool:
        """Return whether documents may expire: the collection's options or an index contain `expireAfterSeconds`."""
        return any("expireAfterSeconds" in each for each in (self.options, *self.indexes.values()))

    @cached_property
    def collated(self) -> bool:
        """Return whether the collection has a collation other than the simple one, which compares strings by bytes."""
        collation: Document = self.options.get("collation", {})
        return bool(collation.get("locale", "simple") != "simple")


# The options of buckets that are also options of their time-series collection; the server sets the other ones.
_TIME_SERIES_OPTIONS = ("timeseries", "expireAfterSeconds", "collation", "storageEngine")


def collection_spec(
    name: Namespace, uuid: bytes, options: Document, indexes: Document
) -> CollectionSpec:
    """Return the CollectionSpec of a collection with this name and definition.

    If `name` is the buckets collection of a time-series collection, return the CollectionSpec of the time-series
    collection, without the `options` that only buckets have.
    """
    if name.owner == name:
        return CollectionSpec(name, Kind.COLLECTION, uuid, options, indexes)
    kept = {each: options[each] for each in _TIME_SERIES_OPTIONS if each in options}
    return CollectionSpec(name.owner, Kind.TIME_SERIES, uuid, kept, indexes)


def is_undecodable(decoded: object) -> bool:
    """Return whether a name or text in `decoded` was not valid UTF-8, or contains U+FFFD, which replaces invalid bytes.

    `decoded` is a namespace, or a part of a definition. Text inside expressions (`rawbson.EXPRESSIONS`) is ignored,
    because expressions are never decoded.
    """
    return _REPLACEMENT in repr(decoded)


def without(options: Document, names: Container[str]) -> Document:
    """Return the options of a collection, or the fields of a collMod, except those with these names."""
    return {name: value for name, value in options.items() if name not in names}


def same_index(left: Document, right: Document) -> bool:
    """Return whether two index specifications are equal.

    The order of the options is ignored, but not the order of fields inside an option.
    """
    return left.keys() == right.keys() and all(
        same_document(left[name], right[name]) for name in left
    )


def same_document(left: Any, right: Any) -> bool:
    """Return whether two values are equal, including their types and the order of fields.

    A plain comparison is not enough, because 1 and 1.0 are equal in Python.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(
            same_document(left[key], right[key]) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_document, left, right))
    # A value that is not equal to itself is NaN.
    return type(left) is type(right) and bool(left == right or (left != left and right != right))
