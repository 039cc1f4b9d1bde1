"""The preconditions of a check: the requirements for its two clusters, and for the cluster of --metaURI.

The functions here have no side effects, and yield all violations, not only the first one.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.cluster.cluster import SAME_CLUSTER, lacking, unfit, unreadable_id
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.failures import NOT_AUTHORIZED
from verifier.cluster.features import ClusterRole
from verifier.cluster.privileges import READING, STREAMING
from verifier.compare.scope import Scope
from verifier.errors import UNSUPPORTED_VERSION
from verifier.runtime.errors import Violation

OLDEST_SOURCE, OLDEST_DESTINATION = (5, 0), (6, 0)

NEEDS = (*READING, *STREAMING)
_SUPPORTED = (Topology.REPLICA_SET, Topology.SHARDED)


def violations(
    scope: Scope, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    """Yield every violation of the requirements for the two clusters of a check.

    The source and the destination may be the same cluster only if `scope` renames namespaces.
    """
    for role, facts, oldest in (
        ("source", source, OLDEST_SOURCE),
        ("destination", destination, OLDEST_DESTINATION),
    ):
        yield from unfit(role, facts, _SUPPORTED, oldest, UNSUPPORTED_VERSION)
        yield from lacking(ClusterRole(role), facts, of_verifier=True)
        yield from _missing_privileges(role, facts)
    yield from unknown_identities(source, destination)
    if source.identity is not None and source.identity == destination.identity:
        if not scope.renamed:
            yield SAME_CLUSTER, (
                f"Both connection strings lead to a {source.topology.value} with the ID {source.identity}."
            )


def unfit_to_store(facts: ClusterFacts) -> Iterator[Violation]:
    """Yield a violation if the cluster of --metaURI has an unsupported topology or version.

    The verifier must write to this cluster while a write block is set there, and drop collections by their UUIDs.
    Servers before 6.0 support neither.
    """
    yield from unfit(
        "cluster of --metaURI", facts, _SUPPORTED, OLDEST_DESTINATION, UNSUPPORTED_VERSION
    )


def unknown_identities(source: ClusterFacts, destination: ClusterFacts) -> Iterator[Violation]:
    """Yield a violation for each cluster whose ID the user may not read.

    Without the ID, a cluster could be compared with itself, and a restarted verifier could not recognize it.
    """
    yield from unreadable_id("the source", source)
    yield from unreadable_id("the destination", destination)


def _missing_privileges(role: str, facts: ClusterFacts) -> Iterator[Violation]:
    for need in NEEDS:
        if missing := need.lacking(facts):
            yield NOT_AUTHORIZED, (
                f"The user of the {role} lacks the privileges [{', '.join(missing)}] to {need.purpose} on all "
                f"databases; the built-in role {need.role} has them."
            )
