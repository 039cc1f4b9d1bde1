"""Compares definitions: which collections and views exist, their options, their indexes, their shard keys. Pure.

The type of a number means nothing in an option or index: `expireAfterSeconds: 60` and `60.0`, `{a: 1}` and
`{a: 1.0}` are one definition to a server, which makes most numbers (sizes, seconds, versions, weights) of one type
itself, and another version of another. It counts in what the user wrote as an expression: validators, pipelines of
views, filters of partial indexes. There, and in the keys of indexes and shards, the order of fields counts too; that of
options does not. Options that say what holds without them are none. Shard keys are compared where both clusters are
sharded; where only the destination is, an index that it needs for its shard key is not one too many.

Collections are matched by name, and views name others as they do on their own cluster: whoever renames, renames before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import bson
from bson.decimal128 import Decimal128

from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import EXPRESSIONS
from verifier.cluster.specification import FILLER, CollectionSpec, Document
from verifier.compare.documents import Mode, differences
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference

_PLAIN = {"v", "key", "name"}
# Whole numbers beyond this do not all fit into a long.
_TOO_LARGE = 1 << 62
# What holds of validation, and of the number of documents in a capped collection, where nothing is said. An empty
# validator is none, either.
_HOLD_ANYWAY: tuple[tuple[str, Any], ...] = (
    ("validationLevel", "strict"),
    ("validationAction", "error"),
    ("max", 2147483647),
)


def compare_definitions(
    expected: Iterable[CollectionSpec], actual: Iterable[CollectionSpec]
) -> list[DefinitionMismatch]:
    """Every difference between what should be on the destination and what is there."""
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
        detail = f"a {found.kind.value}"
        yield DefinitionMismatch(namespace, Difference.EXTRA, Aspect.EXISTENCE, detail=detail)
    elif found is None and wanted is not None:
        detail = f"a {wanted.kind.value}"
        yield DefinitionMismatch(namespace, Difference.MISSING, Aspect.EXISTENCE, detail=detail)
    elif wanted is not None and found is not None:
        if wanted.kind is not found.kind:
            detail = f"a {wanted.kind.value} on the source, a {found.kind.value} on the destination"
            yield DefinitionMismatch(namespace, Difference.CONTENT, Aspect.KIND, detail=detail)
            return
        options = _told(wanted.options), _told(found.options)
        yield from _compare_parts(namespace, Aspect.OPTION, *options)
        yield from _compare_parts(namespace, Aspect.INDEX, wanted.indexes, _judged(wanted, found))
        yield from _compare_shard_keys(namespace, wanted.shard_key, found.shard_key)


def _told(options: Document) -> Document:
    """The options without those that say what holds anyway, which collMod leaves behind and create does not."""
    return {
        name: value
        for name, value in options.items()
        if (name, value) not in _HOLD_ANYWAY and not (name == "validator" and not value)
    }


def _judged(wanted: CollectionSpec, found: CollectionSpec) -> dict[str, Document]:
    """The indexes found, without one that is there for the shard key of the destination alone."""
    if not found.shard_key or wanted.shard_key:
        return found.indexes
    key = found.shard_key["key"]
    serving = [list(each.items()) for each in (key, {**key, FILLER: 1})]
    return {
        name: index
        for name, index in found.indexes.items()
        if name in wanted.indexes
        or not index.keys() <= _PLAIN
        or list(index["key"].items()) not in serving
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
    """Where an index, option or shard key differs; nothing where it does not."""
    # Of an index and a shard key, the fields are compared; their order means nothing.
    parts = [{name: each} if aspect is Aspect.OPTION else each for each in (wanted, found)]
    raws = [
        bson.encode({field: _comparable(field, part[field]) for field in sorted(part)})
        for part in parts
    ]
    named = differences(raws[0], raws[1], Mode.BINARY)
    return "; ".join(each.detail if each.path == name else str(each) for each in named)


def _comparable(name: str, value: Any) -> Any:
    return value if name in EXPRESSIONS else _plain(value)


def _plain(value: Any) -> Any:
    """The value with all numbers that are equal made one."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Decimal128):
        return _plain_number(value.to_decimal())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _plain_number(Decimal(value))
    return value


def _plain_number(number: Decimal) -> int | float:
    whole = number.is_finite() and abs(number) < _TOO_LARGE and number == int(number)
    return int(number) if whole else float(number)
