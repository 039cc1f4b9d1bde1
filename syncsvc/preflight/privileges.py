"""Which privileges a sync needs on each cluster, and which built-in roles have them. Pure; the tables are all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syncsvc.options import StartOptions, WriteBlocking
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.failures import NOT_AUTHORIZED
from verifier.runtime.errors import Violation


@dataclass(frozen=True)
class Need:
    """Actions on the cluster and on the collections of every database; `role` is a built-in role that has them."""

    purpose: str
    role: str
    on_cluster: tuple[str, ...] = ()
    on_collections: tuple[str, ...] = ()

    def lacking(self, facts: ClusterFacts) -> list[str]:
        return [*facts.lacks(*self.on_cluster), *facts.lacks_everywhere(*self.on_collections)]


READING = (
    Need(
        "read",
        "readAnyDatabase",
        ("listDatabases",),
        ("collStats", "find", "listCollections", "listIndexes"),
    ),
    Need("read collections by their ids", "clusterMonitor", ("useUUID",)),
)
STREAMING = (Need("read changes", "readAnyDatabase", (), ("changeStream",)),)
WRITING = (
    Need(
        "write",
        "readWriteAnyDatabase",
        (),
        (
            *("insert", "update", "remove", "createCollection", "createIndex"),
            *("dropCollection", "dropIndex", "renameCollectionSameDB"),
        ),
    ),
    Need(
        "change definitions",
        "dbAdminAnyDatabase",
        (),
        ("bypassDocumentValidation", "collMod", "dropDatabase"),
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
# A sync gets along without it, but waits at its end.
NOTING = Need("append a note to the oplog", "backup", ("appendOplogNote",))


def needs_of_source(options: StartOptions) -> tuple[Need, ...]:
    """What the source's user needs; of a sync that may be reversed, all that the destination's user needs, too."""
    if options.reversible:
        return (*READING, *STREAMING, *WRITING, *BLOCKING_AND_PASSING)
    blocked = options.write_blocking is WriteBlocking.SOURCE_AND_DESTINATION
    return (*READING, *STREAMING, *(BLOCKING if blocked else ()))


def needs_of_destination(options: StartOptions) -> tuple[Need, ...]:
    """What the destination's user needs; its changes are read by the verification, and when the sync is reversed."""
    streamed = options.verification or options.reversible
    blocked = options.write_blocking is not WriteBlocking.NONE
    return (
        *READING,
        *(STREAMING if streamed else ()),
        *WRITING,
        *(BLOCKING_AND_PASSING if blocked else ()),
    )


def privilege_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    """What the users lack, where the clusters have access control."""
    for side, facts, needs in (
        ("source", source, needs_of_source(options)),
        ("destination", destination, needs_of_destination(options)),
    ):
        for need in needs:
            if missing := need.lacking(facts):
                yield NOT_AUTHORIZED, (
                    f"missing privileges ([{', '.join(missing)}]) to {need.purpose} on the {side}; "
                    f"the built-in role {need.role} has them."
                )
        if facts.identity is None:
            yield NOT_AUTHORIZED, (
                f"missing privileges ([replSetGetConfig]) to read the id of the replica set on the {side}; "
                "the built-in role clusterMonitor has them."
            )
