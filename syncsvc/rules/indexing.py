"""Computes the definition that a collection must have on the destination: name, options, indexes and shard key.

Also yields the reasons why a collection cannot be synced. The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from syncsvc.errors import (
    COLLECTION_NOT_SHARDABLE,
    DOCUMENT_FILTER_NOT_APPLICABLE,
    NAMESPACE_COLLISION,
    NOT_RENAMABLE,
    TTL_NOT_VERIFIABLE,
    UNSUPPORTED_COLLECTION,
)
from syncsvc.options import BuildIndexes, StartOptions
from syncsvc.rules import sharding
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.namespace import LONGEST_SHARDED_NAME
from verifier.cluster.namespace_map import (
    NamespaceMap,
    case_collisions,
    collision,
    obstacles,
    renamed,
    reverse_collision,
)
from verifier.cluster.specification import CollectionSpec, Document, Kind, is_undecodable, without
from verifier.runtime.errors import Violation, raise_all


@dataclass(frozen=True)
class Target:
    """The settings that, together with the source's definitions, determine the definitions on the destination."""

    options: StartOptions
    # Whether the destination is a sharded cluster.
    sharded: bool
    # The map from names on the source to names on the destination.
    names: NamespaceMap
    # The options of collections that the destination no longer supports; see `ClusterFacts.unknown_options`.
    unknown_options: frozenset[str] = frozenset()


def destined(definition: CollectionSpec, target: Target) -> CollectionSpec:
    """Return the definition that a collection or view must have on the destination, with its name there.

    `definition` is its definition on the source. The result includes neither the index on `_id` nor the index that
    a sync may create to support the shard key. Call this only if `violations` yields nothing.
    """
    return renamed(_unrenamed(definition, target), target.names)


def _unrenamed(definition: CollectionSpec, target: Target) -> CollectionSpec:
    """Return the definition that a collection must have on the destination, but with its name on the source.

    The options, the indexes and the shard key are those of the destination.
    """
    return replace(
        definition,
        options=without(definition.options, target.unknown_options),
        indexes=built(definition, target.options),
        shard_key=_shard_key(definition, target),
    )


def built(definition: CollectionSpec, options: StartOptions) -> dict[str, Document]:
    """Return the indexes of `definition` that the start option `buildIndexes` selects, by name."""
    build = options.build_indexes
    return {name: each for name, each in definition.indexes.items() if _is_built(each, build)}


def _shard_key(definition: CollectionSpec, target: Target) -> Document | None:
    """Return the shard key of a collection on the destination; None or empty if the collection is not sharded there.

    A collection of a sharded source keeps its shard key. For a collection of a replica set, the start option `sharding`
    determines the shard key.
    """
    if not target.sharded:
        return None
    if definition.shard_key is not None:
        return definition.shard_key
    return sharding.key_of(definition.namespace, target.options.sharding)


def _is_built(index: Document, build: BuildIndexes) -> bool:
    if build is BuildIndexes.NEVER:
        return False
    return build.hashed or "hashed" not in index["key"].values()


def ttl_violations(definition: CollectionSpec, options: StartOptions) -> Iterator[Violation]:
    """Yield a violation for TTL indexes that are not built on the destination although verification is enabled.

    Without such an index, no documents would expire on the destination after the commit.
    """
    if options.build_indexes is not BuildIndexes.NEVER or not options.verification:
        return
    names = [name for name, index in definition.indexes.items() if "expireAfterSeconds" in index]
    if names:
        yield TTL_NOT_VERIFIABLE, (
            f"The TTL indexes of {definition.namespace} would be missing on the destination, because buildIndexes is "
            f"never: {', '.join(names)}. So no documents would expire there after the commit."
        )


def text_violations(definition: CollectionSpec) -> Iterator[Violation]:
    """Yield a violation for a definition that cannot be recreated because a name or text in it is not valid UTF-8.

    The character U+FFFD counts as invalid, too, because decoding puts it in place of invalid bytes. Text inside
    expressions, such as validators and view pipelines, may be invalid, because expressions are copied as undecoded
    BSON.
    """
    if is_undecodable((definition.namespace, definition.options, definition.indexes)):
        yield UNSUPPORTED_COLLECTION, (
            f"{definition.namespace}: a name or text in its definition is not valid UTF-8, or contains the "
            "character U+FFFD, which replaces invalid bytes. Rename or redefine it on the source."
        )


def rename_violations(definition: CollectionSpec, target: Target) -> Iterator[Violation]:
    """Yield a violation for each reason why the renames of `namespaceRemap` prevent syncing a collection or view.

    With the start option `reversible`, the new name must also be one that a reversed sync can map back. If names
    collide, only the violation for the collision is yielded.
    """
    name, names = definition.namespace, target.names
    collides = collision(name, names)
    if collides is None and target.options.reversible:
        collides = reverse_collision(name, names)
    if collides is not None:
        yield NAMESPACE_COLLISION, collides
        return
    for obstacle in obstacles(definition, names):
        yield NOT_RENAMABLE, obstacle


def document_filter_violations(definition: CollectionSpec, target: Target) -> Iterator[Violation]:
    """Yield a violation if the start option `documentFilter` names a collection or view that it cannot apply to."""
    if definition.namespace not in target.options.document_filters:
        return
    kind = _unfilterable(definition)
    if kind is not None:
        yield DOCUMENT_FILTER_NOT_APPLICABLE, (
            f"documentFilter names {definition.namespace}, which is {kind}."
        )


def length_violations(definition: CollectionSpec, target: Target) -> Iterator[Violation]:
    """Yield a violation if the name of a collection on the destination is too long for a sharded collection there."""
    there = target.names.to_destination(definition.namespace)
    size = len(str(there).encode())
    if _shard_key(definition, target) and size > LONGEST_SHARDED_NAME:
        yield COLLECTION_NOT_SHARDABLE, (
            f"{definition.namespace} cannot be sharded under the name {there} on the destination: servers allow at "
            f"most {LONGEST_SHARDED_NAME} bytes for the name of a sharded collection, not {size}."
        )


def _unfilterable(definition: CollectionSpec) -> str | None:
    """Return why the documents of this kind of collection cannot be filtered; None if they can be filtered.

    The text continues a sentence that ends with "which is".
    """
    if definition.kind is Kind.VIEW:
        return "a view"
    if definition.kind is Kind.TIME_SERIES:
        return "a time-series collection: its measurements are stored in buckets, so they cannot be selected one by one"
    if definition.capped:
        # The destination could not keep the insertion order if an old document matched only after an update.
        return "a capped collection: a document that matched only after an update would not keep its place in the order"
    return None


def violations(definition: CollectionSpec, target: Target) -> Iterator[Violation]:
    """Yield a violation for each reason why a collection or view with this definition cannot be synced."""
    yield from text_violations(definition)
    yield from ttl_violations(definition, target.options)
    yield from rename_violations(definition, target)
    yield from document_filter_violations(definition, target)
    yield from length_violations(definition, target)
    if definition.kind is Kind.COLLECTION and "timeseries" in definition.options:
        yield UNSUPPORTED_COLLECTION, (
            f"{definition.namespace} cannot be synced: it is a time-series collection without the collection "
            f"system.buckets.{definition.namespace.collection}. MongoDB 9.0 creates such time-series collections."
        )
    if definition.sharded and definition.kind is Kind.TIME_SERIES:
        yield COLLECTION_NOT_SHARDABLE, (
            f"{definition.namespace} is a sharded time-series collection, which cannot be synced."
        )
    else:
        yield from sharding.violations(_unrenamed(definition, target))


def is_renamable(definition: CollectionSpec, target: Target) -> bool:
    """Return whether a collection or view of the source can be synced with the renames of `namespaceRemap`."""
    return not any(True for _ in rename_violations(definition, target))


def check(definition: CollectionSpec, target: Target) -> None:
    """Raise OperationError with all `violations` of a definition on the source, if there are any."""
    raise_all(violations(definition, target))


def check_ttl(definition: CollectionSpec, target: Target) -> None:
    """Raise OperationError TTLNotVerifiable if verification is enabled, but a TTL index would not be built."""
    raise_all(ttl_violations(definition, target.options))


def definition_violations(
    target: Target, source: ClusterFacts, definitions: Iterable[CollectionSpec]
) -> Iterator[Violation]:
    """Yield a violation for each reason why one of these collections and views of the source cannot be synced."""
    listed = list(definitions)
    time_series = [str(each.namespace) for each in listed if each.kind is Kind.TIME_SERIES]
    if time_series and not source.reports_ddl:
        yield UNSUPPORTED_COLLECTION, (
            "The source does not report changes of time-series collections (only MongoDB 6.0 and newer can do this), "
            f"so these collections cannot be synced: {', '.join(time_series)}."
        )
    for sentence in case_collisions(listed, target.names):
        yield NAMESPACE_COLLISION, sentence
    for each in listed:
        yield from violations(each, target)
        if target.options.sharding is not None:
            yield from sharding.index_violations(each, target.options.sharding)
