"""Computes the definition that a collection must have on the destination: its indexes and its shard key.

Also yields the reasons why a collection cannot be synced. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from syncsvc import shard_rules
from syncsvc.errors import TTL_NOT_VERIFIABLE, UNSUPPORTED_COLLECTION
from syncsvc.options import BuildIndexes, StartOptions
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import Violation, raise_all

# The character with which decoding replaces bytes that are not UTF-8.
_REPLACEMENT = "\ufffd"


def destined(definition: CollectionSpec, options: StartOptions) -> CollectionSpec:
    """Return the source's `definition` with the indexes and the shard key that the destination must have.

    The start option `buildIndexes` selects the indexes; the index on `_id` is not among them. A collection of a sharded
    source keeps its shard key; a collection of a replica set gets the key from the start option `sharding`.
    """
    build = options.build_indexes
    indexes = {name: each for name, each in definition.indexes.items() if _is_built(each, build)}
    key = shard_rules.key_of(definition.namespace, options.sharding)
    known = definition.shard_key
    return replace(definition, indexes=indexes, shard_key=key if known is None else known)


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


def violations(definition: CollectionSpec, options: StartOptions) -> Iterator[Violation]:
    """Yield a violation for each reason why a collection or view cannot be synced. `definition` is the source's."""
    yield from text_violations(definition)
    yield from ttl_violations(definition, options)
    yield from shard_rules.violations(destined(definition, options))


def check(definition: CollectionSpec, options: StartOptions) -> None:
    """Raise OperationError with all `violations` of a definition on the source, if there are any."""
    raise_all(violations(definition, options))


def check_ttl(definition: CollectionSpec, options: StartOptions) -> None:
    """Raise OperationError TTLNotVerifiable if a TTL index of the collection cannot be verified."""
    raise_all(ttl_violations(definition, options))


def definition_violations(
    options: StartOptions, source: ClusterFacts, definitions: Iterable[CollectionSpec]
) -> Iterator[Violation]:
    """Yield a violation for each reason why a collection of the source cannot be synced with these options."""
    listed = list(definitions)
    time_series = [str(each.namespace) for each in listed if each.kind is Kind.TIME_SERIES]
    if time_series and not source.reports_ddl:
        yield UNSUPPORTED_COLLECTION, (
            "A source before MongoDB 6.0 does not report changes of time-series collections, so these cannot be "
            f"synced: {', '.join(time_series)}."
        )
    for each in listed:
        yield from violations(each, options)
        if options.sharding is not None:
            yield from shard_rules.index_violations(each, options.sharding)
