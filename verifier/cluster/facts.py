"""The facts about a cluster that decisions depend on, such as its topology, its version and the user's privileges.

`gather` reads the facts; a ClusterFacts object never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pymongo.errors import OperationFailure

from verifier.cluster import failures, features, inventory, probing
from verifier.cluster.connect import Client
from verifier.cluster.features import ClusterRole, Feature, Version

# The options of collections that newer servers refuse, each with the first version that refuses it (SERVER-60919).
_REMOVED_OPTIONS: Mapping[str, Version] = {"recordPreImages": (6, 2, 0)}

# A patch version that is newer than any real one.
_ANY_PATCH = 999


class Topology(Enum):
    STANDALONE = "standalone"
    REPLICA_SET = "replica set"
    SHARDED = "sharded cluster"


@dataclass(frozen=True)
class ClusterFacts:
    """The facts about one cluster at the time of `gather`.

    Without access control, or if the connection has no authenticated user, `access_control` is False and the five
    fields with privileges are None.
    """

    topology: Topology
    # Host and port of the primary, of a mongos or of a standalone server.
    address: str
    version: tuple[int, int, int]
    # The ID of the replica set or sharded cluster, the same for every member, mongos or address; None for a standalone
    # server, or if the server refuses to return it, for example because the user lacks the privilege.
    identity: str | None
    access_control: bool
    # The user's actions on the cluster resource.
    privileges: frozenset[str] | None
    # The user's actions on the collections of every database.
    database_privileges: frozenset[str] | None = None
    # The user's actions on the buckets of every time-series collection.
    bucket_privileges: frozenset[str] | None = None
    # The user's actions on collections of the config database, each with the name of a collection (empty: all of them).
    config_privileges: frozenset[tuple[str, str]] | None = None
    # The user's actions on system collections of the admin database, each with the name of the collection (empty: all).
    admin_privileges: frozenset[tuple[str, str]] | None = None
    # The sorted names of the shards; empty on a replica set, and if the server refuses to return them.
    shards: tuple[str, ...] = ()
    # The featureCompatibilityVersion; None for a standalone server, or if the server refuses to return it or has none.
    compatibility: tuple[int, int] | None = None
    # The names of the features that the cluster refuses although its version promises them.
    refused: frozenset[str] = frozenset()

    @property
    def is_sharded(self) -> bool:
        return self.topology is Topology.SHARDED

    @property
    def dotted_version(self) -> str:
        """Return the version of the servers, with the featureCompatibilityVersion if that is older."""
        dotted = ".".join(map(str, self.version))
        if self.compatibility is None or self.compatibility >= self.version[:2]:
            return dotted
        return f"{dotted} with featureCompatibilityVersion {'.'.join(map(str, self.compatibility))}"

    @property
    def level(self) -> Version:
        """Return the version that determines the features of the cluster.

        If featureCompatibilityVersion names an older release than the servers' own, return the newest version of that
        older release.
        """
        if self.compatibility is None or self.compatibility >= self.version[:2]:
            return self.version
        return (*self.compatibility, _ANY_PATCH)

    def offers(self, feature: Feature) -> bool:
        return feature.promised(self.level) and feature.name not in self.refused

    def missing(self, role: ClusterRole) -> list[Feature]:
        """Return the features that the sync service or the verifier would use on this cluster, but that it lacks.

        `role` is the role of the cluster: source or destination, or both if the role is not known.
        """
        concerned = (each for each in features.FEATURES if each.concerns(role, self.is_sharded))
        return [each for each in concerned if not self.offers(each)]

    @property
    def reports_ddl(self) -> bool:
        """Return whether change streams report DDL events, each with the UUID of its collection.

        Some of these clusters report no changes of shard keys.
        """
        return all(map(self.offers, features.REPORTING_DDL))

    @property
    def orders_buckets(self) -> bool:
        """Return whether the servers can read the buckets of a time-series collection in the order of their `_id`.

        Servers before 6.0 refuse `_id` as a hint there. The featureCompatibilityVersion does not matter.
        """
        return self.version >= (6, 0, 0)

    @property
    def blocks_writes(self) -> bool:
        """Return whether the cluster has the command that blocks user writes."""
        return self.offers(features.BLOCK_WRITES)

    @property
    def splits_large_events(self) -> bool:
        """Return whether change streams can split an event that is larger than 16 MB into fragments."""
        return self.offers(features.SPLIT_EVENTS)

    @property
    def unknown_options(self) -> frozenset[str]:
        """Return collection options that older servers accept, but that `create` and `collMod` refuse on this cluster.

        An upgrade of servers to such a version removes these options from their collections.
        """
        # The servers decide this, whatever the featureCompatibilityVersion is.
        return frozenset(name for name, first in _REMOVED_OPTIONS.items() if self.version >= first)

    def lacks(self, *actions: str) -> list[str]:
        """Return the given cluster actions that the user lacks; empty without access control."""
        return _not_in(self.privileges, actions)

    def lacks_everywhere(self, *actions: str) -> list[str]:
        """Return the given actions that the user lacks on the collections of every database.

        The list is empty without access control.
        """
        return _not_in(self.database_privileges, actions)

    def lacks_on_buckets(self, *actions: str) -> list[str]:
        """Return the given actions that the user lacks on the buckets of every time-series collection.

        The list is empty without access control.
        """
        return _not_in(self.bucket_privileges, actions)

    def lacks_on_config(self, collection: str, *actions: str) -> list[str]:
        """Return the given actions that the user lacks on a collection of the config database.

        Each action is named with the collection, as in "find on config.chunks". The list is empty without access
        control.
        """
        return _lacked_on(self.config_privileges, "config", collection, actions)

    def lacks_on_admin(self, collection: str, *actions: str) -> list[str]:
        """Return the given actions that the user lacks on a system collection of the admin database.

        Each action is named with the collection, as in "find on admin.system.users". The list is empty without access
        control.
        """
        return _lacked_on(self.admin_privileges, "admin", collection, actions)


def _not_in(held: frozenset[str] | None, actions: tuple[str, ...]) -> list[str]:
    return [] if held is None else [action for action in actions if action not in held]


def _lacked_on(
    held: frozenset[tuple[str, str]] | None,
    database: str,
    collection: str,
    actions: tuple[str, ...],
) -> list[str]:
    if held is None:
        return []
    lacked = [each for each in actions if not held & {(each, collection), (each, "")}]
    return [f"{each} on {database}.{collection}" for each in lacked]


def _topology(hello: Mapping[str, Any]) -> Topology:
    if hello.get("msg") == "isdbgrid":
        return Topology.SHARDED
    return Topology.REPLICA_SET if "setName" in hello else Topology.STANDALONE


def _address(client: Client, hello: Mapping[str, Any]) -> str:
    """Return the address (host:port) of the primary, of a mongos or of a standalone server.

    Of several mongos, return the alphabetically first one, so that the result is always the same for these mongos.
    """
    if "primary" in hello:
        return str(hello["primary"])
    host, port = min(client.topology_description.server_descriptions())
    return f"{host}:{port}"


def _identity(client: Client, topology: Topology) -> str | None:
    """Return the ID of the cluster; None for a standalone server, and if the server refuses to return the ID."""
    try:
        if topology is Topology.REPLICA_SET:
            config = client.admin.command("replSetGetConfig")["config"]
            return _replica_set_id(config) or _substitute_id(client, config)
        if topology is Topology.SHARDED:
            version = client.config["version"].find_one()
            return None if version is None else str(version["clusterId"])
    except OperationFailure as error:
        if failures.is_transient(error):
            raise
    return None


def _replica_set_id(config: Mapping[str, Any]) -> str | None:
    """Return the ID in a replica set configuration; None if it was initiated by MongoDB before 3.2."""
    found = config.get("settings", {}).get("replicaSetId")
    return None if found is None else str(found)


def _substitute_id(client: Client, config: Mapping[str, Any]) -> str:
    """Return an ID for a replica set whose configuration has none: its name and the UUID of `admin.system.version`.

    All members have the same UUID for this collection, and no server drops the collection.
    """
    (version,) = inventory.list_raw(client, "admin", {"name": "system.version"})
    return f"{config['_id']} {bytes(version['info']['uuid']).hex()}"


def _shards(client: Client) -> tuple[str, ...]:
    """Return the sorted names of the shards; empty if the server refuses to return them."""
    try:
        return tuple(sorted(each["_id"] for each in client.config["shards"].find({}, {"_id": 1})))
    except OperationFailure as error:
        if failures.is_transient(error):
            raise
        return ()


def _privileges(
    status: Mapping[str, Any], covers: Callable[[Mapping[str, Any]], bool]
) -> frozenset[str] | None:
    info = status["authInfo"]
    if not info["authenticatedUsers"]:
        return None
    return frozenset(
        action
        for privilege in info.get("authenticatedUserPrivileges", ())
        if privilege["resource"].get("anyResource") or covers(privilege["resource"])
        for action in privilege["actions"]
    )


def _privileges_by_collection(
    status: Mapping[str, Any], covers: Callable[[Mapping[str, Any]], bool]
) -> frozenset[tuple[str, str]] | None:
    info = status["authInfo"]
    if not info["authenticatedUsers"]:
        return None
    return frozenset(
        (action, privilege["resource"].get("collection", ""))
        for privilege in info.get("authenticatedUserPrivileges", ())
        if covers(privilege["resource"])
        for action in privilege["actions"]
    )


def _is_of_config(resource: Mapping[str, Any]) -> bool:
    """Return whether a privilege on the resource applies to collections of the config database.

    Return False for a privilege on all collections of every database: servers exclude the config database from it.
    """
    if resource.get("anyResource"):
        return True
    database, collection = resource.get("db"), resource.get("collection")
    return collection is not None and (database == "config" or database == "" != collection)


def _is_of_admin(resource: Mapping[str, Any]) -> bool:
    """Return whether a privilege on the resource applies to system collections of the admin database.

    Return False for a privilege on all collections of the database: servers exclude system collections from it.
    """
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", "admin") and bool(resource.get("collection"))


def _is_cluster(resource: Mapping[str, Any]) -> bool:
    return bool(resource.get("cluster"))


def _is_every_collection(resource: Mapping[str, Any]) -> bool:
    return resource.get("db") == "" and resource.get("collection") == ""


def _is_every_bucket(resource: Mapping[str, Any]) -> bool:
    return resource.get("system_buckets") == "" and not resource.get("db")


def gather(client: Client) -> ClusterFacts:
    """Read the facts of a cluster from its servers. Raises the driver's errors."""
    hello = client.admin.command("hello")
    major, minor, patch, *_ = client.server_info()["versionArray"]
    status = client.admin.command({"connectionStatus": 1, "showPrivileges": True})
    privileges = _privileges(status, _is_cluster)
    topology = _topology(hello)
    facts = ClusterFacts(
        topology=topology,
        address=_address(client, hello),
        version=(major, minor, patch),
        identity=_identity(client, topology),
        access_control=privileges is not None,
        privileges=privileges,
        database_privileges=_privileges(status, _is_every_collection),
        bucket_privileges=_privileges(status, _is_every_bucket),
        config_privileges=_privileges_by_collection(status, _is_of_config),
        admin_privileges=_privileges_by_collection(status, _is_of_admin),
        shards=_shards(client) if topology is Topology.SHARDED else (),
    )
    if topology is Topology.STANDALONE:
        return facts
    facts = replace(facts, compatibility=probing.compatibility(client))
    return replace(facts, refused=probing.refused(client, facts.level))
