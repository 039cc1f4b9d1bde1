"""The privileges that a sync needs on each cluster, and the built-in roles that grant them; mainly tables.

The privileges that only sharded clusters need follow MongoDB's documentation; they were not tested on a mongos with
access control. The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from syncsvc.options import Presplit, StartOptions
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.failures import NOT_AUTHORIZED
from verifier.cluster.privileges import (
    IDENTIFYING,
    READING,
    READING_BUCKETS,
    STREAMING,
    Need,
)
from verifier.runtime.errors import Violation

WRITING = (
    Need(
        "write",
        "readWriteAnyDatabase",
        (),
        (
            *("insert", "update", "remove", "createCollection", "createIndex"),
            *("convertToCapped", "dropCollection", "dropIndex", "renameCollectionSameDB"),
        ),
    ),
    Need(
        "change definitions",
        "dbAdminAnyDatabase",
        (),
        ("bypassDocumentValidation", "collMod", "dropDatabase"),
    ),
)
WRITING_BUCKETS = (
    Need(
        "write time-series collections",
        "readWriteAnyDatabase",
        on_buckets=("insert", "update", "remove", "createIndex", "dropIndex"),
    ),
    Need(
        "change definitions of time-series collections",
        "dbAdminAnyDatabase",
        on_buckets=("bypassDocumentValidation", "collMod"),
    ),
)
_BLOCKING = "enable user write blocking"
BLOCKING = (
    Need(_BLOCKING, "backup", ("setUserWriteBlockMode",)),
    Need(_BLOCKING, "clusterMonitor", ("serverStatus",)),
)
BLOCKING_AND_PASSING = (
    Need(_BLOCKING, "restore", ("setUserWriteBlockMode", "bypassWriteBlockingMode")),
    Need(_BLOCKING, "clusterMonitor", ("serverStatus",)),
)
READING_PRINCIPALS = Need(
    "read users and roles",
    "backup",
    on_admin=tuple(
        (name, ("find",)) for name in ("system.roles", "system.users", "system.version")
    ),
)
WRITING_PRINCIPALS = Need(
    "copy users and roles",
    "restore",
    on_collections=(
        *("createRole", "createUser", "grantRole", "revokeRole"),
        *("dropRole", "dropUser", "viewRole"),
    ),
)
# The privileges from here on are needed on sharded clusters only. Stopping and starting the balancer requires write
# access to its settings.
READING_SHARDS = Need(
    "read how collections are sharded",
    "clusterMonitor",
    on_config=(("collections", ("find",)), ("shards", ("find",)), ("version", ("find",))),
)
READING_PRIMARY_SHARDS = Need(
    "notice a movePrimary",
    "clusterMonitor",
    on_config=(("databases", ("find",)),),
)
READING_BLOCKS = Need(
    _BLOCKING,
    "clusterMonitor",
    on_config=(
        ("sharding_configsvr_coordinators", ("find",)),
        ("user_writes_critical_sections", ("find",)),
    ),
)
_SETTINGS = (("settings", ("find", "update")),)
BALANCER = Need("stop the balancer", "backup", on_config=_SETTINGS)
SHARDING = (
    Need("stop the balancer", "clusterManager", on_config=_SETTINGS),
    Need(
        "shard collections",
        "clusterManager",
        on_collections=("enableSharding",),
        on_config=(("databases", ("find",)), ("tags", ("find",))),
    ),
    Need(
        "assign ranges of shard keys to zones",
        "clusterManager",
        on_config=(("shards", ("find", "update")), ("tags", ("find", "update", "remove"))),
        instead="enableSharding",
    ),
)
# A restarted process, a standby that takes over, and a reverse list the running operations (`inprog`) and the chunks
# before they write. `ClusterWriter` also lists the running operations, to wait for a long index build.
FENCING = Need(
    "reject late writes of an earlier process",
    "clusterMonitor",
    ("inprog",),
    on_config=(("chunks", ("find",)),),
)
READING_CHUNKS = Need(
    "read which shard holds each chunk", "clusterMonitor", on_config=(("chunks", ("find",)),)
)
REFINING = Need("refine shard keys", "clusterManager", (), ("refineCollectionShardKey",))


def needs_of_source(
    options: StartOptions, time_series: bool, sharded: bool = False
) -> tuple[Need, ...]:
    """Return the privileges that the user of the source needs; for a reversible sync, also those for writing.

    `time_series` is whether there may be time-series collections, `sharded` is whether the source is a sharded cluster.
    """
    reading = (*_to_read(time_series), *STREAMING)
    if options.reversible:
        writing = (*_to_write(time_series), *BLOCKING_AND_PASSING)
        sharding = _to_shard(options, True) if sharded else ()
        return (*reading, *writing, *sharding, *_to_copy_principals(options))
    blocking = BLOCKING if options.blocks_source else ()
    sharding = _of_sharded_source(options) if sharded else ()
    return (*reading, *blocking, *sharding, *_to_copy_principals(options)[:1])


def needs_of_destination(
    options: StartOptions, time_series: bool, sharded: bool = False
) -> tuple[Need, ...]:
    """Return the privileges that the user of the destination needs.

    They include reading change events if the sync is verified or reversible. `time_series` is whether there may be
    time-series collections, `sharded` is whether the destination is a sharded cluster.
    """
    streamed = options.verification or options.reversible
    return (
        *_to_read(time_series),
        *(STREAMING if streamed else ()),
        *_to_write(time_series),
        *(BLOCKING_AND_PASSING if options.blocks_destination else ()),
        *(_to_shard(options, options.blocks_destination) if sharded else ()),
        *_to_copy_principals(options),
    )


def _to_read(time_series: bool) -> tuple[Need, ...]:
    return (*READING, *READING_BUCKETS) if time_series else READING


def _of_shards(blocks: bool) -> tuple[Need, ...]:
    return (READING_SHARDS, READING_BLOCKS) if blocks else (READING_SHARDS,)


def _of_sharded_source(options: StartOptions) -> tuple[Need, ...]:
    presplitting = (READING_CHUNKS,) if options.presplit is Presplit.SOURCE else ()
    return (
        *_of_shards(options.blocks_source),
        READING_PRIMARY_SHARDS,
        BALANCER,
        *presplitting,
    )


def _to_shard(options: StartOptions, blocks: bool) -> tuple[Need, ...]:
    # Only a sharded source has shard keys to refine; its shard keys are synced if the option `sharding` is absent.
    refining = (REFINING,) if options.sharding is None else ()
    return (*_of_shards(blocks), *SHARDING, FENCING, *refining)


def _to_copy_principals(options: StartOptions) -> tuple[Need, ...]:
    """Return the privileges to read users and roles, and those to write them; none if the sync does not copy them."""
    return () if options.users_and_roles is None else (READING_PRINCIPALS, WRITING_PRINCIPALS)


def _to_write(time_series: bool) -> tuple[Need, ...]:
    return (*WRITING, *WRITING_BUCKETS) if time_series else WRITING


def privilege_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts, time_series: bool
) -> Iterator[Violation]:
    """Yield a violation for each `Need` that the user of a cluster lacks.

    Also yield one for each replica set whose ID the user may not read. `time_series` is whether there may be
    time-series collections. Without access control, no privilege is lacking.
    """
    for side, name, facts, needs in (
        ("source", options.source, source, needs_of_source),
        ("destination", options.destination, destination, needs_of_destination),
    ):
        plain = needs(replace(options, reversible=False), time_series, facts.is_sharded)
        purposes = {each.purpose for each in plain}
        for need in needs(options, time_series, facts.is_sharded):
            if missing := need.lacking(facts):
                reason = "" if need.purpose in purposes else " (needed because reversible is true)"
                yield _violation(need, missing, side + reason, name)
        if facts.topology is Topology.REPLICA_SET and facts.identity is None:
            yield _violation(IDENTIFYING, IDENTIFYING.on_cluster, side, name)


def _violation(need: Need, missing: Iterable[str], side: str, cluster: str) -> Violation:
    return NOT_AUTHORIZED, (
        f"missing privileges ([{', '.join(missing)}]) to {need.purpose} on the {side}; "
        f"the built-in role {need.role} has them. Grant it to the user of {cluster}."
    )
