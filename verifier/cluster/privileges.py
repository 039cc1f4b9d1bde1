"""The privileges that syncsvc and its verifier need to read a cluster, and to append a note to its oplog.

They are listed with the built-in roles that grant them. The functions here have no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass

from verifier.cluster.facts import ClusterFacts


@dataclass(frozen=True)
class Need:
    """A set of privileges that a program needs for one purpose."""

    # What the privileges are for, as part of the text of an error.
    purpose: str
    # A built-in role that grants them.
    role: str
    # Privilege actions on the cluster, on all collections, and on the buckets of all time-series collections.
    on_cluster: tuple[str, ...] = ()
    on_collections: tuple[str, ...] = ()
    on_buckets: tuple[str, ...] = ()
    # The names of collections in the config database, each with the actions on it.
    on_config: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # The names of system collections in the admin database, each with the actions on it.
    on_admin: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # An action on the cluster that can replace all of these privileges.
    instead: str = ""

    def lacking(self, facts: ClusterFacts) -> list[str]:
        if self.instead and not facts.lacks(self.instead):
            return []
        return [
            *facts.lacks(*self.on_cluster),
            *facts.lacks_everywhere(*self.on_collections),
            *facts.lacks_on_buckets(*self.on_buckets),
            *(
                lacked
                for collection, actions in self.on_config
                for lacked in facts.lacks_on_config(collection, *actions)
            ),
            *(
                lacked
                for collection, actions in self.on_admin
                for lacked in facts.lacks_on_admin(collection, *actions)
            ),
        ]


READING = (
    Need(
        "read",
        "readAnyDatabase",
        ("listDatabases",),
        ("collStats", "find", "listCollections", "listIndexes"),
    ),
    Need("read collections by their UUIDs", "clusterMonitor", ("useUUID",)),
)
STREAMING = (Need("read changes", "readAnyDatabase", (), ("changeStream",)),)
READING_BUCKETS = (
    Need(
        "read time-series collections",
        "readAnyDatabase",
        on_buckets=("collStats", "find", "listIndexes"),
    ),
)
# Not checked in advance: reading the ID shows whether the user has this privilege.
IDENTIFYING = Need("read the ID of the replica set", "clusterMonitor", ("replSetGetConfig",))
# Optional: without this privilege, a commit and a check wait for the periodic no-op of an idle cluster.
NOTING = Need("append a note to the oplog", "backup", ("appendOplogNote",))
