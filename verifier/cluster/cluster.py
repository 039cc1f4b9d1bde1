"""A cluster that this process works with: its client, its facts, and reasons why it is unsuitable for its role."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from pymongo.errors import PyMongoError

from verifier.cluster import failures
from verifier.cluster.connect import Client, connect
from verifier.cluster.facts import ClusterFacts, Topology, gather
from verifier.cluster.features import DOCUMENTS, Side
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError, Violation

SAME_CLUSTER = ErrorKind(
    "SameCluster",
    400,
    "Source and destination are one cluster.",
    "Name two different clusters, and check both connection strings.",
)
UNSUPPORTED_TOPOLOGY = ErrorKind(
    "UnsupportedTopology",
    409,
    "A cluster has a topology that is not supported here.",
    "Both clusters must be replica sets or sharded clusters.",
)
SERVER_FEATURE_MISSING = ErrorKind(
    "ServerFeatureMissing",
    409,
    "A server does not have a command that this program needs.",
    "Use a MongoDB server of a supported version; other servers that speak its protocol are not supported. The "
    "documentation lists the features that are needed, and what needs them.",
)

_log = logging.getLogger(__name__)

# Older sharded clusters do not report changes of shard keys, and cannot be asked which `_id` values are equal.
_OLDEST_SHARDED = (6, 0)


@dataclass(frozen=True)
class Cluster:
    """A cluster: the name that users know, its client, and the facts that were read at the start or at a takeover."""

    name: str
    client: Client
    facts: ClusterFacts

    @property
    def identity(self) -> str:
        """Return the id of the replica set or sharded cluster; its address if the user may not read the id."""
        return self.facts.identity or self.facts.address


def open_cluster(name: str, uri: str, application: str) -> Cluster:
    """Connect to a cluster and ask it for its facts.

    Raises OperationError InvalidURI, ClusterUnreachable, NotAuthorized, UnsupportedTopology for a single server, and
    InternalError with the driver's text for any other error of the driver.
    """
    try:
        client = connect(uri, application, name)
        facts = gather(client)
    except PyMongoError as error:
        kind = failures.named_kind(error) or INTERNAL_ERROR
        raise OperationError(kind, f"{name}: {failures.text_of(error)}.") from error
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
            "missing": [each.name for each in facts.missing(Side.BOTH)],
        },
    )
    return Cluster(name, client, facts)


def refreshed(cluster: Cluster) -> Cluster:
    """Return the cluster with its present facts. Raises the driver's errors."""
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
    """Yield the reasons why the topology or version of a cluster rules it out as `role`, "source" or "destination".

    `topologies` are those that are supported. `too_old` is the error for a version before `oldest`, or before 6.0 if
    the cluster is sharded.
    """
    if facts.topology not in topologies:
        yield UNSUPPORTED_TOPOLOGY, f"The {role} is a {facts.topology.value}."
    if facts.level[:2] < oldest:
        yield too_old, f"The {role} runs MongoDB {facts.dotted_version}."
    elif facts.is_sharded and facts.level[:2] < _OLDEST_SHARDED:
        yield too_old, f"The {role} is a sharded cluster that runs MongoDB {facts.dotted_version}."


def lacking(side: Side, facts: ClusterFacts, of_verifier: bool = False) -> Iterator[Violation]:
    """Yield a violation if the cluster lacks commands that nothing replaces; only those of the verifier if asked."""
    names = [
        each.name
        for each in facts.missing(side)
        if each.required and each.name in facts.refused and (each.verifier or not of_verifier)
    ]
    if names:
        yield SERVER_FEATURE_MISSING, (
            f"The {side.value} (MongoDB {facts.dotted_version}) does not have the commands: {', '.join(names)}."
        )


def filter_evaluator(source: Cluster, destination: Cluster) -> Cluster:
    """Return the cluster whose server evaluates the namespace filters.

    It is the source, unless it lacks `$documents`: such servers evaluate an expression only over documents of a
    collection. The destination is never that old.
    """
    return source if source.facts.offers(DOCUMENTS) else destination
