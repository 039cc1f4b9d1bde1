"""The server features that the programs use: commands, options and stages. The functions here have no side effects.

Each row of `FEATURES` says since which version servers have a feature, and what happens if a server lacks the feature.
The module `probing` asks a server whether it has the features that its version promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

Version = tuple[int, int, int]

# The oldest supported version.
_ALWAYS: tuple[Version, ...] = ((5, 0, 0),)


class Probe(Enum):
    """The ways to find out whether a server has a feature. The values are texts for the documentation."""

    # The names of all commands are read by one call.
    COMMANDS = "``listCommands``"
    # A change stream with all such features is opened; if the server refuses it, one for each feature.
    STREAM = "opening a change stream"
    # The server is not asked: its version decides.
    VERSION = "version"
    # The caller tries the feature when it needs it, and handles a refusal.
    USE = "first use"


class ClusterRole(Enum):
    """The role of the clusters on which a feature is used."""

    BOTH = "both"
    SOURCE = "source"
    DESTINATION = "destination"


class Shape(Enum):
    """The topologies on which a feature is used."""

    ANY = "any"
    REPLICA_SET = "replica set"
    SHARDED = "sharded cluster"


@dataclass(frozen=True)
class Feature:
    """A feature of servers, the versions that have it, and the effect if a server lacks it."""

    name: str
    # The purpose of the feature.
    use: str
    # The effect if a server lacks the feature.
    without: str
    probe: Probe
    # The first versions that have the feature, the oldest one first. Each version except the last one applies only to
    # its own release.
    since: tuple[Version, ...] = _ALWAYS
    role: ClusterRole = ClusterRole.BOTH
    shape: Shape = Shape.ANY
    # Whether nothing can replace the feature, so that a server without it is refused.
    required: bool = False
    # Whether the verifier uses the feature, too.
    verifier: bool = False

    @property
    def first(self) -> str:
        """Return the first versions that have the feature, as text; "all" if all supported versions have it."""
        if self.since == _ALWAYS:
            return "all"
        return ", ".join(".".join(map(str, each)).removesuffix(".0") for each in self.since)

    def promised(self, version: Version) -> bool:
        """Return whether servers of this version have the feature according to `since`."""
        *patched, last = self.since
        return version >= last or any(
            version[:2] == each[:2] and version >= each for each in patched
        )

    @property
    def effect(self) -> str:
        """Return `without`, the effect of a missing feature, as plain text."""
        return self.without.replace("``", "")

    def concerns(self, role: ClusterRole, sharded: bool) -> bool:
        """Return whether the feature is used on clusters of this role (any role if `role` is BOTH) and topology."""
        shapes = (Shape.ANY, Shape.SHARDED if sharded else Shape.REPLICA_SET)
        return (
            role is ClusterRole.BOTH or self.role in (ClusterRole.BOTH, role)
        ) and self.shape in shapes


_REFUSED = "``ServerFeatureMissing``"
_AS_BEFORE_60 = (
    "The source is treated like a MongoDB 5.0 server: collections are read by name instead of by UUID, and changed "
    "definitions are found by comparing the definitions regularly. Time-series collections are refused."
)
_OR_REFUSED = f"{_AS_BEFORE_60} A sharded source is refused: {_REFUSED}."

EXPANDED_EVENTS = Feature(
    "showExpandedEvents",
    "Change events for DDL, and the UUID of the collection in each change event.",
    _OR_REFUSED,
    Probe.STREAM,
    since=((6, 0, 0),),
    role=ClusterRole.SOURCE,
    verifier=True,
)
SYSTEM_EVENTS = Feature(
    "showSystemEvents",
    "Change events of the buckets of time-series collections.",
    _OR_REFUSED,
    Probe.STREAM,
    since=((6, 0, 0),),
    role=ClusterRole.SOURCE,
    verifier=True,
)
MIGRATION_EVENTS = Feature(
    "showMigrationEvents",
    "Change events of the documents that ``convertToCapped`` and ``cloneCollectionAsCapped`` copy.",
    _AS_BEFORE_60,
    Probe.STREAM,
    since=((6, 0, 0),),
    role=ClusterRole.SOURCE,
    shape=Shape.REPLICA_SET,
    verifier=True,
)
RAW_UPDATES = Feature(
    "showRawUpdateDescription",
    "Reading the oplog's own diff of an update.",
    "Updated documents are reread from the source.",
    Probe.STREAM,
    since=((6, 0, 0),),
    role=ClusterRole.SOURCE,
)
SPLIT_EVENTS = Feature(
    "$changeStreamSplitLargeEvent",
    "Reading change events that are larger than 16 MB.",
    "The change stream is reopened without the contents of events, and the documents are reread. An event that is "
    "too large even without its contents fails the sync with ``EventTooLarge``.",
    Probe.STREAM,
    since=((6, 0, 9), (7, 0, 0)),
    role=ClusterRole.SOURCE,
)
COLLECTION_UUID = Feature(
    "collectionUUID",
    "Reads and DDL commands that fail if another collection has taken the name of the expected collection.",
    _AS_BEFORE_60,
    Probe.VERSION,
    since=((6, 0, 0),),
    verifier=True,
)
DOCUMENTS = Feature(
    "$documents",
    "Evaluating namespace filters, and comparing strings with a collation, on a server.",
    "The destination evaluates the namespace filters. The verifier cannot determine the order of strings with a "
    "collation, and may compare documents whose ``_id`` contains such strings more than once.",
    Probe.VERSION,
    since=((5, 1, 0),),
    verifier=True,
)
LIST_CATALOG = Feature(
    "$listCatalog",
    "Reading the indexes of all collections of a replica set in one call.",
    "The indexes of each collection are read separately, which takes longer.",
    Probe.USE,
    since=((6, 0, 0),),
    shape=Shape.REPLICA_SET,
    verifier=True,
)
BLOCK_WRITES = Feature(
    "setUserWriteBlockMode",
    "Blocking user writes.",
    "On the source: a start is refused if ``enableUserWriteBlocking`` is ``sourceAndDestination`` "
    "(``WriteBlockingNeedsNewerSource``) or if ``reversible`` is true (``ReversibleNeedsNewerSource``). "
    f"On the destination: a start is refused unless ``enableUserWriteBlocking`` is ``none`` ({_REFUSED}).",
    Probe.COMMANDS,
    since=((6, 0, 0),),
)
MERGE_PRINCIPALS = Feature(
    "_mergeAuthzCollections",
    "Copying users and roles.",
    f"A start that copies users and roles (``usersAndRoles``) is refused: {_REFUSED}.",
    Probe.COMMANDS,
    role=ClusterRole.DESTINATION,
)
# All of these features are needed to follow DDL by events alone.
REPORTING_DDL = (EXPANDED_EVENTS, SYSTEM_EVENTS, MIGRATION_EVENTS, COLLECTION_UUID)


def _required(
    use: str, names: str, role: ClusterRole = ClusterRole.BOTH, shape: Shape = Shape.ANY
) -> Iterator[Feature]:
    for name in names.split():
        yield Feature(
            name,
            use,
            _REFUSED,
            Probe.COMMANDS,
            role=role,
            shape=shape,
            required=True,
            verifier=role is ClusterRole.BOTH and shape is Shape.ANY,
        )


def _tried(
    use: str,
    without: str,
    *names: str,
    role: ClusterRole = ClusterRole.BOTH,
    shape: Shape = Shape.ANY,
) -> Iterator[Feature]:
    for name in names:
        # The verifier also uses the features that both clusters need.
        verifier = role is ClusterRole.BOTH
        yield Feature(name, use, without, Probe.USE, role=role, shape=shape, verifier=verifier)


FEATURES: tuple[Feature, ...] = (
    *_required(
        "Reading documents, change events and definitions.",
        "aggregate count find getMore killCursors listCollections listDatabases listIndexes",
    ),
    *_required(
        "Writing documents and definitions.",
        "collMod create createIndexes delete drop dropDatabase dropIndexes insert renameCollection update",
        ClusterRole.DESTINATION,
    ),
    Feature(
        "dataSize",
        "Reading the sizes of collections.",
        _REFUSED,
        Probe.COMMANDS,
        shape=Shape.REPLICA_SET,
        required=True,
        verifier=True,
    ),
    *_required(
        "Reading the state of the write block, and the queue of operations for throttling the sync.",
        "serverStatus",
        shape=Shape.REPLICA_SET,
    ),
    *_required(
        "Stopping the balancer during a sync.",
        "balancerStart balancerStatus balancerStop",
        shape=Shape.SHARDED,
    ),
    *_required(
        "Sharding collections and distributing databases.",
        "addShardToZone enableSharding refineCollectionShardKey removeShardFromZone shardCollection updateZoneKeyRange",
        ClusterRole.DESTINATION,
        Shape.SHARDED,
    ),
    EXPANDED_EVENTS,
    SYSTEM_EVENTS,
    MIGRATION_EVENTS,
    COLLECTION_UUID,
    RAW_UPDATES,
    Feature(
        "$_internalApplyOplogUpdate",
        "Applying the oplog's own diff of an update.",
        "Updated documents are reread from the source.",
        Probe.USE,
        role=ClusterRole.DESTINATION,
    ),
    SPLIT_EVENTS,
    DOCUMENTS,
    LIST_CATALOG,
    *_tried(
        "Resuming the copy of a collection in natural order.",
        "The sync fails if a server lacks the feature, but all supported versions of MongoDB have the feature.",
        "$_requestResumeToken",
        "$_resumeAfter",
        role=ClusterRole.SOURCE,
        shape=Shape.REPLICA_SET,
    ),
    BLOCK_WRITES,
    MERGE_PRINCIPALS,
    Feature(
        "appendOplogNote",
        "Advancing the change stream of an idle cluster.",
        "The change stream of an idle cluster advances only with the no-op that the cluster itself writes every 10 "
        "seconds.",
        Probe.COMMANDS,
        verifier=True,
    ),
    Feature(
        "collStats",
        "Reading the size of the oplog, and the times of its first and last entry.",
        "The size of the oplog and the times of its entries are unknown, and a warning says so.",
        Probe.COMMANDS,
        role=ClusterRole.SOURCE,
        shape=Shape.REPLICA_SET,
    ),
    Feature(
        "dbStats",
        "Reading the free disk space of the destination.",
        "The free disk space is not checked, and a warning says so.",
        Probe.COMMANDS,
        role=ClusterRole.DESTINATION,
    ),
    *_tried(
        "Reading the identity of a replica set, its replication lag for throttling the sync, and the last checkpoint "
        "of a member for the resume points of a copy in natural order.",
        "Without the identity, a start or check is refused: ``NotAuthorized``. Without the replication lag, the lag "
        "does not throttle the sync. Without the last checkpoint, the copy of a collection in natural order begins "
        "again if the server was restarted after the last resume point.",
        "replSetGetConfig",
        "replSetGetStatus",
        shape=Shape.REPLICA_SET,
    ),
    *_tried(
        "Ending DDL commands that a killed process of the sync left running, and waiting for long index builds.",
        "The sync fails if a server lacks the feature, but all supported versions of MongoDB have the feature.",
        "$currentOp",
        "killSessions",
        role=ClusterRole.DESTINATION,
    ),
    *_tried(
        "Recognizing that a member still has the data files to which a resume point belongs.",
        "The copy of a collection in natural order begins again if the server was restarted after the last resume "
        "point.",
        "local.startup_log",
        "local.replset.initialSyncId",
        role=ClusterRole.SOURCE,
        shape=Shape.REPLICA_SET,
    ),
    *_tried(
        "Reading shard keys, shards, primary shards, zones, and the identity of a sharded cluster.",
        "The sync or check fails if a server lacks one of them, but all supported versions of MongoDB have them.",
        "config.collections",
        "config.shards",
        "config.databases",
        "config.tags",
        "config.version",
        shape=Shape.SHARDED,
    ),
)
