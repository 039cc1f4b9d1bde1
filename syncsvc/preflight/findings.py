"""What was found when both clusters and this machine were asked. Frozen; decides nothing, asks nobody."""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.saved.run import RunRecord
from syncsvc.source.oplog import Oplog
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec


@dataclass(frozen=True)
class Metadata:
    """A database that a sync service keeps for itself: its collections, and the instances of ours that saved a sync."""

    database: str
    collections: frozenset[str]
    instances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A collection or view of the source that is to be synced, and what it takes there."""

    definition: CollectionSpec
    size: Size = Size()


@dataclass(frozen=True)
class Findings:
    """Both clusters at one moment. What could not be learned, or may not be read, is None.

    `contents` are what is to be synced, `left_out` what of `sharding` the filter leaves out; `disk_free` is of the
    destination's primary, `oplog` is that of the source, `memory_available` is what this process may still take. Sizes
    are in bytes. `runs` are what instances have saved on the destination.
    """

    source: ClusterFacts
    destination: ClusterFacts
    bad_patterns: tuple[str, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    contents: tuple[Measured, ...] | None = None
    left_out: frozenset[Namespace] = frozenset()
    disk_free: int | None = None
    oplog: Oplog | None = None
    memory_available: int | None = None
    runs: tuple[RunRecord, ...] = ()
