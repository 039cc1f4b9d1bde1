"""The facts gathered from both clusters and this machine before a start. Frozen data: no decisions, no queries."""

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
    """A database with a reserved name, for example the metadata of a sync, and the names of its collections.

    `instances` are the IDs of the syncsvc instances whose runs it holds; empty if it holds none.
    """

    database: str
    collections: frozenset[str]
    instances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A collection or view of the source that will be synced, and its size on the source."""

    definition: CollectionSpec
    size: Size = Size()


@dataclass(frozen=True)
class Findings:
    """The facts about both clusters at one moment. A fact that is unknown, or that the user may not read, is None.

    `bad_patterns` are the server's errors for the regular expressions of the filter. `occupied` are the user databases
    on the destination that hold anything, and `metadata` the metadata databases there. `contents` are the collections
    and views to sync. `left_out` are the namespaces in the option `sharding` that the filter excludes. `disk_free` is
    the free space on the destination's primary, `oplog` is the source's oplog, `memory_available` is what this process
    may still allocate. Sizes are in bytes. `runs` are the run records that instances saved on the destination.
    """

    source: ClusterFacts
    destination: ClusterFacts
    bad_patterns: tuple[str, ...] = ()
    occupied: tuple[str, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    contents: tuple[Measured, ...] | None = None
    left_out: frozenset[Namespace] = frozenset()
    disk_free: int | None = None
    oplog: Oplog | None = None
    memory_available: int | None = None
    runs: tuple[RunRecord, ...] = ()
