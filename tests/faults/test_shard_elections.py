"""Causes elections and rollbacks of shards and config servers in every stage of a sync, behind two routers.

The config server and each shard have three members. The clusters must be equal at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.faults.cells import Stage
from tests.faults.disturbances import OF_SERVERS, disturbance
from tests.faults.flight import Disturbance, Journey, fill
from tests.support.members import ThreeMembers
from tests.support.pair import Pair, Side
from tests.support.selection import full
from tests.support.sharded.cluster import ShardedCluster

Sharded = tuple[ShardedCluster, ShardedCluster]
# A replica set: the side (0: source, 1: destination), and the number of the shard, or None for the config server.
Part = tuple[int, int | None]
# Disturbances of most kinds, spread over the stages and the parts of both clusters.
MIXED: Mapping[Stage, tuple[str, Part]] = {
    Stage.LISTING: ("step-down", (0, 0)),
    Stage.COPY: ("killed primary", (1, 1)),
    Stage.INDEXES: ("step-down", (1, 0)),
    Stage.VERIFICATION: ("killed primary", (0, 1)),
    Stage.EVENTS: ("rollback", (1, 1)),
    Stage.COMMIT: ("no primary for 5 s", (1, 0)),
    Stage.REVERSE: ("step-down", (1, 1)),
}
MORE: Mapping[Stage, tuple[str, Part]] = {
    Stage.LISTING: ("killed primary", (1, None)),
    Stage.COPY: ("rolling restart", (0, 1)),
    Stage.INDEXES: ("stopped primary", (1, 1)),
    Stage.VERIFICATION: ("step-down", (1, None)),
    Stage.EVENTS: ("killed primary", (0, None)),
    Stage.COMMIT: ("killed primary", (0, 1)),
    Stage.REVERSE: ("rolling restart", (1, 0)),
}


@pytest.fixture(scope="module")
def sharded() -> Iterator[Sharded]:
    with ExitStack() as stack:
        clusters = [ShardedCluster(name=each, members=3) for each in ("source", "destination")]
        source, destination = map(stack.enter_context, clusters)
        yield source, destination


def _part(clusters: Sharded, part: Part) -> ThreeMembers:
    side, shard = part
    found = clusters[side].config if shard is None else clusters[side].shards[shard]
    assert isinstance(found, ThreeMembers)
    return found


def _fly(clusters: Sharded, folder: Path, plan: Mapping[Stage, tuple[str, Part]]) -> None:
    """Run a sync with the disturbance that `plan` names for each stage."""
    with ExitStack() as stack:
        clients = [stack.enter_context(each.client()) for each in clusters]
        source, destination = (
            Side(each.uri, client, each.shards, each.routers)
            for each, client in zip(clusters, clients, strict=True)
        )
        pair = Pair(source, destination)
        pair.empty()
        fill(pair)
        daemon = stack.enter_context(closing(pair.daemon(folder)))

        def actions(stage: Stage) -> list[Disturbance]:
            if stage not in plan:
                return []
            name, part = plan[stage]
            return [disturbance(name, _part(clusters, part), daemon)]

        daemon.run()
        Journey(pair, daemon, actions).fly()


@pytest.mark.parametrize("plan", [MIXED, full(MORE)], ids=["one", "another"])
def test_a_sync_through_elections_of_shards(
    sharded: Sharded, tmp_path: Path, plan: Mapping[Stage, tuple[str, Part]]
) -> None:
    _fly(sharded, tmp_path, plan)


@pytest.mark.full
@pytest.mark.parametrize("part", [(0, 1), (1, 0), (1, 1), (1, None)], ids=str)
@pytest.mark.parametrize("name", OF_SERVERS)
def test_a_disturbance_of_a_shard_in_every_stage(
    sharded: Sharded, tmp_path: Path, name: str, part: Part
) -> None:
    _fly(sharded, tmp_path, dict.fromkeys(Stage, (name, part)))
