"""Tests replica sets of one and three members: they accept writes, have the requested configuration, and fail over.

A wrong use or a failed start is an error, and leaves nothing behind.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pymongo import ReadPreference, WriteConcern

from syncsvc.sandbox import ReplicaSet, SandboxError
from syncsvc.sandbox.replica_set import Client
from tests.sandbox.processes import children


@pytest.fixture(scope="module")
def single() -> Iterator[ReplicaSet]:
    with ReplicaSet(
        name="lone", oplog_size_mb=16, cache_size_gb=0.5, parameters={"ttlMonitorSleepSecs": "7"}
    ) as replica_set:
        yield replica_set


@pytest.fixture(scope="module")
def three() -> Iterator[ReplicaSet]:
    with ReplicaSet(members=3) as replica_set:
        yield replica_set


@pytest.fixture(params=["single", "three"])
def either(request: pytest.FixtureRequest) -> ReplicaSet:
    replica_set = request.getfixturevalue(request.param)
    assert isinstance(replica_set, ReplicaSet)
    return replica_set


def write(replica_set: ReplicaSet, number: int) -> None:
    """Insert a document, and wait until every running member has it in its journal."""
    running = sum(member.pid is not None for member in replica_set.members)
    concern = WriteConcern(running, j=True)
    with replica_set.client() as client:
        numbers = client.test.get_collection("numbers", write_concern=concern)
        numbers.insert_one({"_id": number})


def count(replica_set: ReplicaSet, index: int) -> int:
    """Return the number of documents in the collection of `write` on the member with this index."""
    address = replica_set.members[index].address
    with Client(address, directConnection=True) as client:
        numbers = client.test.get_collection(
            "numbers", read_preference=ReadPreference.SECONDARY_PREFERRED
        )
        return numbers.count_documents({})


def test_majority_writes_are_accepted(either: ReplicaSet) -> None:
    with Client(either.uri) as client:
        collection = client.test.get_collection("majority", write_concern=WriteConcern("majority"))
        assert collection.insert_one({}).acknowledged
        assert len(client.nodes) == len(either.members)


def test_without_access_control_there_is_one_uri(single: ReplicaSet) -> None:
    assert single.uri == single.root_uri
    assert single.uri == f"mongodb://{single.members[0].address}/?replicaSet=lone"


def test_the_options_reach_the_server(single: ReplicaSet) -> None:
    with single.client() as client:
        interval = client.admin.command("getParameter", ttlMonitorSleepSecs=1)
        cache = client.admin.command("serverStatus")["wiredTiger"]["cache"]
        oplog = client.local.command("collStats", "oplog.rs")
    assert interval["ttlMonitorSleepSecs"] == 7
    assert cache["maximum bytes configured"] == 512 * 1024 * 1024
    assert oplog["maxSize"] == 16 * 1024 * 1024


def test_a_single_member_becomes_primary_again_after_a_step_down(single: ReplicaSet) -> None:
    assert single.step_down() is single.members[0]
    write(single, 1)


def test_step_down_gives_a_new_primary(three: ReplicaSet) -> None:
    old = three.primary()
    new = three.step_down()
    assert new is not old
    assert new is three.primary()


def test_a_single_member_keeps_its_data_over_a_restart(single: ReplicaSet) -> None:
    write(single, 2)
    before = count(single, 0)
    single.kill_member(0)
    assert single.members[0].pid is None
    single.restart_member(0)
    assert count(single, 0) == before


@pytest.mark.full
def test_three_members_survive_the_loss_of_the_primary(three: ReplicaSet) -> None:
    write(three, 1)
    lost = three.members.index(three.primary())
    three.kill_member(lost)
    assert three.primary() is not three.members[lost]
    write(three, 2)
    three.restart_member(lost)
    write(three, 3)
    assert [count(three, index) for index in range(3)] == [3, 3, 3]


def test_several_replica_sets_can_start_at_the_same_time(tmp_path: Path) -> None:
    sets = [ReplicaSet(name=name, folder=tmp_path) for name in ("source", "destination")]
    with ThreadPoolExecutor() as pool:
        list(pool.map(ReplicaSet.start, sets))
    ports = {one.primary().port for one in sets}
    with ThreadPoolExecutor() as pool:
        list(pool.map(ReplicaSet.stop, sets))
    assert len(ports) == 2
    assert not any(tmp_path.iterdir())


def test_a_replica_set_can_be_started_again_after_a_stop() -> None:
    replica_set = ReplicaSet()
    for _ in range(2):
        with replica_set:
            write(replica_set, 1)
    replica_set.stop()


def test_a_running_replica_set_cannot_be_started_again(single: ReplicaSet) -> None:
    with pytest.raises(SandboxError, match="was started already"):
        single.start()


def test_there_is_no_uri_before_the_start() -> None:
    with pytest.raises(SandboxError, match="not started"):
        ReplicaSet().uri


def test_only_one_or_three_members_are_accepted() -> None:
    with pytest.raises(SandboxError, match="1 or 3 members"):
        ReplicaSet(members=2)


def test_a_failed_start_leaves_nothing(tmp_path: Path) -> None:
    before = children(os.getpid())
    with pytest.raises(SandboxError, match="nonsense"):
        ReplicaSet(members=3, folder=tmp_path, parameters={"nonsense": "1"}).start()
    assert children(os.getpid()) == before
    assert not any(tmp_path.iterdir())


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="No data folder could be made"):
        ReplicaSet(folder=tmp_path / "missing").start()
    assert not any(tmp_path.iterdir())
