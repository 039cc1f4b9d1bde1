"""The facts gathered from both clusters and this machine before a start. This module contains only data classes."""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.principals.comparison import Comparison
from syncsvc.rules.taken_names import Taken
from syncsvc.rules.unmatched_filters import FilterMatches
from syncsvc.saved.other_syncs import OtherSync
from syncsvc.saved.run import RunRecord
from syncsvc.source.oplog import Oplog
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec


@dataclass(frozen=True)
class ReservedDatabase:
    """A database with a reserved name, such as the metadata database of a sync, and the names of its collections.

    `instances` are the IDs of the syncsvc instances whose run records the database holds; empty if it holds none, or is
    not the metadata database of this sync.
    """

    database: str
    collections: frozenset[str]
    instances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A collection or view of the source that will be synced, and its size there.

    With a document filter, the numbers of documents and bytes are estimates for the selected documents.
    """

    definition: CollectionSpec
    size: Size = Size()


@dataclass(frozen=True)
class Findings:
    """The facts about both clusters at one moment.

    Unless a comment says otherwise, a fact that is unknown, or that the user of the cluster may not read, is None or
    empty.
    """

    source: ClusterFacts
    destination: ClusterFacts
    # The name of this sync's metadata database.
    database: str = METADATA_DATABASE
    # The server's errors for invalid regular expressions in the filter.
    bad_patterns: tuple[str, ...] = ()
    # The queries of document filters that the source refuses: the collection of each, and the server's error.
    bad_queries: tuple[tuple[Namespace, str], ...] = ()
    # The user databases on the destination that hold a collection other than `system.profile` and `system.views`.
    occupied: tuple[str, ...] = ()
    # The names that the sync needs, but that the destination already has; only if the destination may hold other data.
    taken: Taken = Taken()
    # The other syncs that have the same destination.
    others: tuple[OtherSync, ...] = ()
    # The databases on the destination with a reserved name.
    metadata: tuple[ReservedDatabase, ...] = ()
    # The collections and views of the source that will be synced.
    contents: tuple[Measured, ...] | None = None
    # The result of matching the filter with the source; the default if there is no filter, or if it is unknown.
    filter_matches: FilterMatches = FilterMatches()
    # The names of time series on the source that have buckets but no time-series collection, so that no query shows
    # their measurements; only names that the filter selects.
    hidden: frozenset[Namespace] = frozenset()
    # The collections in the start option `sharding` that the filter excludes.
    left_out: frozenset[Namespace] = frozenset()
    # Whether the copy can read from a member of the source that suits the start option `copyReadPreference`.
    readable: bool = True
    # The free bytes on the disk of the destination's primary, or on those of the primaries of all shards together.
    disk_free: int | None = None
    # The oplog of the source.
    oplog: Oplog | None = None
    # How many more bytes of memory this process can allocate.
    memory_available: int | None = None
    # The comparison of the users and roles of both clusters, if the start options ask for a copy of them.
    principals: Comparison | None = None
    # The run records in this sync's metadata database.
    runs: tuple[RunRecord, ...] = ()
