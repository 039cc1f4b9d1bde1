"""Compares definitions of collections and views: existence, options, indexes and shard keys.

The functions here have no side effects. In options and indexes, the type of a number is ignored: `expireAfterSeconds:
60` and `60.0`, or `{a: 1}` and `{a: 1.0}`, are the same definition to a server. A server itself converts most numbers
(sizes, seconds, versions, weights) to one type, which depends on its version. The types of numbers are compared in
expressions that users write: validators, pipelines of views, filters of partial indexes. The order of the options of a
collection or index is ignored, but not the order of fields in the value of an option or in a shard key. Options that
only state a default (of validation or of capped collections) are ignored, and so are flags that servers
add to the options of time-series collections. Shard keys are compared if both clusters are sharded. If a collection is
sharded on the destination only, an index that only supports its shard key does not count as extra.

Collections are matched by name, and names inside views are compared as they are. So the caller must first apply renames
to the expected definitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import bson
from bson.decimal128 import Decimal128

from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import EXPRESSIONS
from verifier.cluster.specification import FILLER, CollectionSpec, Document, without
from verifier.compare.documents import Mode, differences
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference

_PLAIN = {"v", "key", "name"}
# Whole numbers above this limit may not fit into a long.
_TOO_LARGE = 1 << 62
# The defaults of validation options, and of the maximum number of documents in a capped collection. An empty validator
# is ignored as well.
_HOLD_ANYWAY: tuple[tuple[str, Any], ...] = (
    ("validationLevel", "strict"),
    ("validationAction", "error"),
    ("max", 2147483647),
)
# Flags about the buckets of a time-series collection, which servers set themselves. Newer patch versions store them in
# the option `storageEngine`, where users can see them, and older ones elsewhere (SERVER-91195).
_BUCKET_FLAG = re.compile(
    "(timeseriesBucketsMayHaveMixedSchemaData|timeseriesBucketingParametersHaveChanged)=(true|false),?"
)
_NO_METADATA = re.compile(r",?app_metadata=\(\)")


def compare_definitions(
    expected: Iterable[CollectionSpec], actual: Iterable[CollectionSpec]
) -> list[DefinitionMismatch]:
    """Return every difference between the expected and the actual definitions.

    The descriptions mark an actual value with "on the destination", and an expected one with "expected".
    """
    wanted = {spec.namespace: spec for spec in expected}
    found = {spec.namespace: spec for spec in actual}
    mismatches: list[DefinitionMismatch] = []
    for namespace in sorted({*wanted, *found}):
        mismatches.extend(_compare(namespace, wanted.get(namespace), found.get(namespace)))
    return mismatches


def _compare(
    namespace: Namespace, wanted: CollectionSpec | None, found: CollectionSpec | None
) -> Iterator[DefinitionMismatch]:
    if wanted is None and found is not None:
        detail = f"a {found.kind}"
        yield DefinitionMismatch(namespace, Difference.EXTRA, Aspect.EXISTENCE, detail=detail)
    elif found is None and wanted is not None:
        detail = f"a {wanted.kind}"
        yield DefinitionMismatch(namespace, Difference.MISSING, Aspect.EXISTENCE, detail=detail)
    elif wanted is not None and found is not None:
        if wanted.kind is not found.kind:
            detail = f"a {wanted.kind} on the source, a {found.kind} on the destination"
            yield DefinitionMismatch(namespace, Difference.CONTENT, Aspect.KIND, detail=detail)
            return
        options = _own_options(wanted.options), _own_options(found.options)
        yield from _compare_parts(namespace, Aspect.OPTION, *options)
        yield from _compare_parts(
            namespace, Aspect.INDEX, wanted.indexes, _without_support(wanted, found)
        )
        yield from _compare_shard_keys(namespace, wanted.shard_key, found.shard_key)


def _own_options(options: Document) -> Document:
    """Return the options, except those that only state a default, and flags that servers set.

    For example, a collMod can have saved an option that states a default. The deprecated `autoIndexId` is left out,
    too: `idIndex` shows whether the index on `_id` exists.
    """
    return {
        name: value
        for name, value in _without_flags(options).items()
        if name != "autoIndexId"
        and (name, value) not in _HOLD_ANYWAY
        and not (name == "validator" and not value)
    }


def _without_flags(options: Document) -> Document:
    """Return the options without the flags about buckets that servers add to `storageEngine`."""
    settings = options.get("storageEngine", {}).get("wiredTiger", {})
    if "configString" not in settings:
        return options
    config = _BUCKET_FLAG.sub("", settings["configString"]).replace(",)", ")")
    changed = {**settings, "configString": _NO_METADATA.sub("", config)}
    if changed == {"configString": ""}:
        return without(options, {"storageEngine"})
    return {**options, "storageEngine": {**options["storageEngine"], "wiredTiger": changed}}


def _without_support(wanted: CollectionSpec, found: CollectionSpec) -> dict[str, Document]:
    """Return the indexes of the collection `found`, by name.

    If only `found` is sharded, leave out the indexes that only support its shard key.
    """
    if not found.shard_key or wanted.shard_key:
        return found.indexes
    key = found.shard_key["key"]
    supporting = [list(each.items()) for each in (key, {**key, FILLER: 1})]
    return {
        name: index
        for name, index in found.indexes.items()
        if name in wanted.indexes
        or not index.keys() <= _PLAIN
        or list(index["key"].items()) not in supporting
    }


def _compare_parts(
    namespace: Namespace, aspect: Aspect, wanted: Document, found: Document
) -> Iterator[DefinitionMismatch]:
    for name in sorted({*wanted, *found}):
        if name not in found:
            yield DefinitionMismatch(namespace, Difference.MISSING, aspect, name)
        elif name not in wanted:
            yield DefinitionMismatch(namespace, Difference.EXTRA, aspect, name)
        else:
            detail = _detail(aspect, name, wanted[name], found[name])
            if detail:
                yield DefinitionMismatch(namespace, Difference.CONTENT, aspect, name, detail)


def _compare_shard_keys(
    namespace: Namespace, wanted: Document | None, found: Document | None
) -> Iterator[DefinitionMismatch]:
    if wanted is None or found is None:
        return
    if wanted and not found:
        yield DefinitionMismatch(namespace, Difference.MISSING, Aspect.SHARD_KEY)
    elif found and not wanted:
        yield DefinitionMismatch(namespace, Difference.EXTRA, Aspect.SHARD_KEY)
    else:
        detail = _detail(Aspect.SHARD_KEY, "", wanted, found)
        if detail:
            yield DefinitionMismatch(namespace, Difference.CONTENT, Aspect.SHARD_KEY, detail=detail)


def _detail(aspect: Aspect, name: str, wanted: Any, found: Any) -> str:
    """Return a description of the differences in an index, option or shard key; empty if there are none."""
    if bson.encode({name: wanted}) == bson.encode({name: found}):
        # Nearly all comparisons end here, and this is four times as fast as the code below.
        return ""
    # The top-level fields of an index or shard key are compared in any order.
    parts = [{name: each} if aspect is Aspect.OPTION else each for each in (wanted, found)]
    raws = [
        bson.encode({field: _comparable(field, part[field]) for field in sorted(part)})
        for part in parts
    ]
    # During a sync, the expected value is often not that of the source, for example in a TTL index.
    named = differences(raws[0], raws[1], Mode.BINARY, "expected")
    return "; ".join(each.detail if each.path == name else str(each) for each in named)


def _comparable(name: str, value: Any) -> Any:
    return value if name in EXPRESSIONS else _plain(value)


def _plain(value: Any) -> Any:
    """Return a copy of the value in which equal numbers have the same type, also in embedded documents and arrays."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    if isinstance(value, Decimal128):
        return _plain_number(value.to_decimal())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _plain_number(Decimal(value))
    return value


def _plain_number(number: Decimal) -> int | float:
    whole = number.is_finite() and abs(number) < _TOO_LARGE and number == int(number)
    return int(number) if whole else float(number)
