"""A process continues a saved run only if the run syncs the clusters of the process."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.options import StartOptions
from syncsvc.saved.find_run import fitting_run
from syncsvc.saved.run import RunRecord
from syncsvc.state import State
from tests.unit.syncsvc.records import run_record
from verifier.cluster.cluster import Cluster
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.runtime.errors import OperationError

SOURCE, DESTINATION = "65aa", "65bb"


def cluster(name: str, identity: str | None) -> Cluster:
    address = f"{name}.example:27017"
    facts = ClusterFacts(Topology.REPLICA_SET, address, (6, 0, 5), identity, True, frozenset())
    return Cluster(name, None, facts)  # type: ignore[arg-type]


def found(record: RunRecord, source: str | None, destination: str | None, holder: int = 1) -> Any:
    """Return the run that a process with these cluster IDs continues; cluster number `holder` stores `record`."""
    clusters = {
        name: cluster(name, identity)
        for name, identity in (("cluster0", source), ("cluster1", destination))
    }
    return fitting_run([(record, clusters[f"cluster{holder}"])], clusters)


def refusal(record: RunRecord, source: str | None, destination: str | None, holder: int = 1) -> str:
    """Return the name and the text of the error with which a process refuses to continue `record`."""
    with pytest.raises(OperationError) as raised:
        found(record, source, destination, holder)
    return f"{raised.value.kind.name}: {raised.value}"


def test_without_a_saved_run_there_is_none_to_continue() -> None:
    assert fitting_run([], {}) is None


def test_the_run_of_the_clusters_is_continued() -> None:
    record = run_record()
    assert found(record, SOURCE, DESTINATION) is record


def test_a_run_in_the_other_direction_is_continued() -> None:
    record = run_record(options=StartOptions("cluster1", "cluster0"))
    assert found(record, DESTINATION, SOURCE, holder=0) is record


@pytest.mark.parametrize("identity", [SOURCE, None])
def test_a_run_saved_with_an_address_is_continued(identity: str | None) -> None:
    record = run_record(identities=("cluster0.example:27017", DESTINATION))
    assert found(record, identity, DESTINATION) is record


@pytest.mark.parametrize(
    "source, destination, holder",
    [("65cc", DESTINATION, 1), (SOURCE, "65cc", 1), (DESTINATION, SOURCE, 0)],
)
def test_a_run_between_other_clusters_is_refused(
    source: str, destination: str, holder: int
) -> None:
    text = refusal(run_record(), source, destination, holder)
    assert text.startswith("WrongClusters: ")
    assert f"cluster{holder} holds the saved state of a sync that was started from cluster0" in text
    assert "(a cluster with the ID 65aa) to cluster1 (a cluster with the ID 65bb)" in text
    ids = f"cluster0 {source}, cluster1 {destination}"
    assert f"The IDs of the clusters of this process are: {ids}." in text


def test_an_unreadable_id_is_not_a_wrong_cluster() -> None:
    text = refusal(run_record(), None, DESTINATION)
    assert text.startswith("NotAuthorized: The user of cluster0 cannot read the ID")


def test_a_committed_run_between_other_clusters_names_the_clean_up() -> None:
    text = refusal(run_record(state=State.COMMITTED), DESTINATION, "65cc", holder=0)
    assert "its state is COMMITTED." in text
    assert "drop its metadata database: see docs/howto/clean-up" in text
