"""Computes the definition that a collection must have on the destination: its indexes and its shard key.

Also yields the reasons why a collection cannot be synced. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from syncsvc import shard_rules
from syncsvc.errors import COLLECTION_NOT_SHARDABLE, TTL_NOT_VERIFIABLE, UNSUPPORTED_COLLECTION
from syncsvc.options import BuildIndexes, StartOptions
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import Violation, raise_all

# The character with which decoding replaces bytes that are not UTF-8.
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Target:
    """The settings that, together with the source's definitions, determine the definitions on the destination."""

    options: StartOptions
    # Whether the destination is a sharded cluster.
    sharded: bool


def destined(definition: CollectionSpec, target: Target) -> CollectionSpec:
    """Return the source's `definition` with the indexes and the shard key that the destination must have.

    The index on `_id` is not among the indexes.
    """
    return replace(
        definition,
        indexes=built(definition, target.options),
        shard_key=_shard_key(definition, target),
    )


def built(definition: CollectionSpec, options: StartOptions) -> dict[str, Document]:
    """Return the indexes that the start option `buildIndexes` selects, by name."""
    build = options.build_indexes
    return {name: each for name, each in definition.indexes.items() if _is_built(each, build)}


def _shard_key(definition: CollectionSpec, target: Target) -> Document | None:
    """Return the shard key on the destination; None if that is a replica set.

    A collection of a sharded source keeps its key. A collection of a replica set gets it from the start option
    `sharding`.
    """
    if not target.sharded:
        return None
    if definition.shard_key is not None:
        return definition.shard_key
    return shard_rules.key_of(definition.namespace, target.options.sharding)


def _is_built(index: Document, build: BuildIndexes) -> bool:
    if build is BuildIndexes.NEVER:
        return False
    return build.hashed or "hashed" not in index["key"].values()


def ttl_violations(definition: CollectionSpec, options: StartOptions) -> Iterator[Violation]:
    """Yield a violation for TTL indexes that are not built on the destination although verification is enabled.

    Without the index, nothing would expire on the destination after the commit.
    """
    if options.build_indexes is not BuildIndexes.NEVER or not options.verification:
        return
    names = [name for name, index in definition.indexes.items() if "expireAfterSeconds" in index]
    if names:
        yield TTL_NOT_VERIFIABLE, (
            f"{definition.namespace} has the TTL index {', '.join(names)}. The destination would lack it, because "
            "buildIndexes is never, so nothing would expire there after the commit."
        )


def text_violations(definition: CollectionSpec) -> Iterator[Violation]:
    """Yield a violation for a definition that cannot be recreated because a name in it is not valid UTF-8.

    Text inside expressions, such as validators and view pipelines, may be invalid: they are copied as undecoded BSON.
    """
    if _REPLACEMENT in repr((definition.namespace, definition.options, definition.indexes)):
        yield UNSUPPORTED_COLLECTION, (
            f"{definition.namespace}: a name or text in its definition is not valid UTF-8, or has the character "
            "U+FFFD, which replaces invalid bytes. Rename or redefine it on the source."
        )


def violations(definition: CollectionSpec, target: Target) -> Iterator[Violation]:
    """Yield a violation for each reason why a collection or view cannot be synced. `definition` is the source's."""
    yield from text_violations(definition)
    yield from ttl_violations(definition, target.options)
    if definition.kind is Kind.COLLECTION and "timeseries" in definition.options:
        yield UNSUPPORTED_COLLECTION, (
            f"{definition.namespace} is a time-series collection without the collection system.buckets."
            f"{definition.namespace.collection}, as servers of 9.0 create it; it cannot be synced."
        )
    if definition.sharded and definition.kind is Kind.TIME_SERIES:
        yield COLLECTION_NOT_SHARDABLE, (
            f"{definition.namespace} is a sharded time-series collection, which cannot be synced."
        )
    else:
        yield from shard_rules.violations(destined(definition, target))


def check(definition: CollectionSpec, target: Target) -> None:
    """Raise OperationError with all `violations` of a definition on the source, if there are any."""
    raise_all(violations(definition, target))


def check_ttl(definition: CollectionSpec, target: Target) -> None:
    """Raise OperationError TTLNotVerifiable if a TTL index of the collection cannot be verified."""
    raise_all(ttl_violations(definition, target.options))


def definition_violations(
    target: Target, source: ClusterFacts, definitions: Iterable[CollectionSpec]
) -> Iterator[Violation]:
    """Yield a violation for each reason why a collection of the source cannot be synced to this target."""
    listed = list(definitions)
    time_series = [str(each.namespace) for each in listed if each.kind is Kind.TIME_SERIES]
    if time_series and not source.reports_ddl:
        yield UNSUPPORTED_COLLECTION, (
            "A source before MongoDB 6.0 does not report changes of time-series collections, so these cannot be "
            f"synced: {', '.join(time_series)}."
        )
    for each in listed:
        yield from violations(each, target)
        if target.options.sharding is not None:
            yield from shard_rules.index_violations(each, target.options.sharding)
