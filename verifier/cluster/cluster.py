"""A cluster that this process works with: its client, its facts, and reasons why it is unsuitable for its role."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from pymongo.errors import PyMongoError

from verifier.cluster import failures
from verifier.cluster.connect import Client, connect, tls_hint
from verifier.cluster.facts import ClusterFacts, Topology, gather
from verifier.cluster.features import DOCUMENTS, REPORTING_DDL, ClusterRole
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError, Violation

SAME_CLUSTER = ErrorKind(
    "SameCluster",
    400,
    "Source and destination are the same cluster, or one is a copy of the other with the same ID, such as a sharded "
    "cluster that was restored from snapshots.",
    "Name two different clusters, and check both connection strings. A cluster and its copy with the same ID are not "
    "supported.",
)
UNSUPPORTED_TOPOLOGY = ErrorKind(
    "UnsupportedTopology",
    409,
    "A cluster has an unsupported topology.",
    "Each cluster must be a replica set or a sharded cluster. A standalone server can be converted to a replica set of "
    "one member.",
)
SERVER_FEATURE_MISSING = ErrorKind(
    "ServerFeatureMissing",
    409,
    "A server does not have a feature that this program needs.",
    "Use MongoDB servers of a supported version, and raise their featureCompatibilityVersion if it is lower than "
    "their version. Other servers that speak the MongoDB protocol are not supported. docs/reference/servers lists the "
    "required features and their use.",
)

_log = logging.getLogger(__name__)

# Older sharded clusters do not report changes of shard keys, and lack the stage `$documents`, which is needed to ask a
# server which `_id` values are equal.
_OLDEST_SHARDED = (6, 0)


@dataclass(frozen=True)
class Cluster:
    """A cluster: the operator's name for it, its client, and the facts that were read when this object was created."""

    name: str
    client: Client
    facts: ClusterFacts

    @property
    def identity(self) -> str:
        """Return the ID of the replica set or sharded cluster; its address if the server refuses to return the ID."""
        return self.facts.identity or self.facts.address


def open_cluster(name: str, uri: str, application: str) -> Cluster:
    """Connect to a cluster, read its facts, and return the Cluster.

    `name` is the operator's name for the cluster, and `application` the name of this program in the server's log.
    Raises OperationError: InvalidURI, MissingPackage, or UnsupportedTopology for a standalone server. A driver's error
    is converted to the kind that `failures.named_kind` returns, or to InternalError if it returns None.
    """
    try:
        client = connect(uri, application, name)
        facts = _gathered(client)
    except OperationError as error:
        raise OperationError(error.kind, f"{name}: {error.description}") from error
    if facts.topology is Topology.STANDALONE:
        raise OperationError(
            UNSUPPORTED_TOPOLOGY, f"{name} at {facts.address} is a standalone server."
        )
    _log.info(
        "Probed the features of a cluster.",
        extra={
            "cluster": name,
            "serverVersion": facts.dotted_version,
            "missing": [each.name for each in facts.missing(ClusterRole.BOTH)],
        },
    )
    return Cluster(name, client, facts)


def _gathered(client: Client) -> ClusterFacts:
    """Read the facts of a cluster through a new client. Raises OperationError in place of the driver's errors."""
    try:
        return gather(client)
    except PyMongoError as error:
        kind = failures.named_kind(error) or INTERNAL_ERROR
        text = f"{failures.text_of(error)}.{tls_hint(client, error)}"
        raise OperationError(kind, text) from error


def refreshed(cluster: Cluster) -> Cluster:
    """Read the facts of the cluster again, and return a copy of the cluster with them. Raises the driver's errors."""
    facts = gather(cluster.client)
    if facts.identity is None:
        # The address identifies the cluster instead, so it must not change while the process runs.
        facts = replace(facts, address=cluster.facts.address)
    return replace(cluster, facts=facts)


def unfit(
    role: str,
    facts: ClusterFacts,
    topologies: Container[Topology],
    oldest: tuple[int, int],
    too_old: ErrorKind,
) -> Iterator[Violation]:
    """Yield a violation for each reason why a cluster is unsuitable for its role.

    Reasons are its topology and its version. `role` names the cluster in the texts, for example "source". `topologies`
    are the supported topologies. `too_old` is the error for a version before `oldest`, or before 6.0 if the cluster is
    sharded. An older featureCompatibilityVersion counts as the version.
    """
    if facts.topology not in topologies:
        yield UNSUPPORTED_TOPOLOGY, f"The {role} is a {facts.topology.value}, which is not supported."
    if facts.level[:2] < oldest:
        yield too_old, f"The {role} runs MongoDB {facts.dotted_version}, which is too old."
    elif facts.is_sharded and facts.level[:2] < _OLDEST_SHARDED:
        yield too_old, (
            f"The {role} is a sharded cluster that runs MongoDB {facts.dotted_version}, which is too old."
        )


def unreadable_id(cluster: str, facts: ClusterFacts) -> Iterator[Violation]:
    """Yield a violation if the user may not read the ID of the replica set or sharded cluster.

    `cluster` names the cluster in the text, for example "the source".
    """
    if facts.identity is None and facts.topology is not Topology.STANDALONE:
        unread = "config database" if facts.is_sharded else "ID of the replica set"
        yield failures.NOT_AUTHORIZED, (
            f"The user of {cluster} cannot read the {unread}. Grant this user the built-in role clusterMonitor."
        )


def lacking(
    role: ClusterRole, facts: ClusterFacts, of_verifier: bool = False
) -> Iterator[Violation]:
    """Yield a violation that names the required commands that the cluster lacks; nothing if it has all of them.

    Yield another violation if a sharded source does not report all DDL events although its version promises it: sharded
    clusters have no substitute for these events. `role` is the role of the cluster. With `of_verifier`, check only the
    features that the verifier needs.
    """
    refused = [
        each
        for each in facts.missing(role)
        if each.name in facts.refused and (each.verifier or not of_verifier)
    ]
    names = [each.name for each in refused if each.required]
    if names:
        yield SERVER_FEATURE_MISSING, (
            f"The {role.value} (MongoDB {facts.dotted_version}) does not have the commands: {', '.join(names)}."
        )
    unreported = [each.name for each in refused if each in REPORTING_DDL]
    if unreported and role is ClusterRole.SOURCE and facts.is_sharded:
        yield SERVER_FEATURE_MISSING, (
            f"The source is a sharded cluster (MongoDB {facts.dotted_version}) that does not report all DDL events: it "
            f"does not have {', '.join(unreported)}."
        )


def filter_evaluator(source: Cluster, destination: Cluster) -> Cluster:
    """Return the cluster that evaluates namespace filters: the source or, if the source is too old, the destination.

    To evaluate a filter for a list of names, servers need the stage `$documents`. Every supported destination has it.
    """
    return source if source.facts.offers(DOCUMENTS) else destination
