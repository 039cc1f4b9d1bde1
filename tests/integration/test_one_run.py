"""Tests that a metadata database holds only one sync.

If several processes begin a sync, only the first one may succeed. Other tests concern the run record, the saved state
of a sync: reads of it, a takeover of it, and its deletion after a failed start.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandStartedEvent

from syncsvc.errors import METADATA_LEFT_OVER, SUPERSEDED
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from syncsvc.saved.lease import LEASES
from syncsvc.saved.peers import Peers
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.saved.run_documents import load_run, load_runs, saved_instances
from syncsvc.saved.run_store import RunStore
from syncsvc.state import State
from tests.support.daemon import Daemon
from tests.support.duo import role_of
from tests.support.failpoints import APPLICATION, failing
from tests.support.pair import Pair
from tests.support.waiting import wait_for
from tests.unit.syncsvc.records import run_record
from verifier.cluster.connect import Client
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


def begun(metadata: Database[dict[str, Any]], writer: ClusterWriter, record: RunRecord) -> RunStore:
    store = RunStore(metadata.name, writer, record)
    store.insert()
    return store


@pytest.mark.parametrize("instance", ["the same", "another"])
def test_one_of_two_concurrent_starts_is_refused(pair: Pair, instance: str) -> None:
    """Begin two syncs that both found no metadata: the second must be refused, and must not change the first."""
    client = pair.destination.client
    writer = ClusterWriter(client, False, StopToken())
    first = begun(client[METADATA_DATABASE], writer, run_record(instance="the same", owner="first"))
    collections = client[METADATA_DATABASE].collections
    collections.insert_one({"_id": "listed"})
    with pytest.raises(OperationError) as raised:
        begun(client[METADATA_DATABASE], writer, run_record(instance=instance, owner="second"))
    assert raised.value.kind is METADATA_LEFT_OVER
    assert saved_instances(client[METADATA_DATABASE]) == ("the same",)
    assert collections.find_one({"_id": "listed"})
    first.update(can_write=True)


def test_an_instance_reads_only_the_record_of_the_coordinator(pair: Pair) -> None:
    """Make the records of all other instances unreadable: the wait for the coordinator must not read them."""
    client = pair.destination.client
    metadata, names = client[METADATA_DATABASE], ("a", "b", "c")
    writer = ClusterWriter(client, False, StopToken())
    records = {name: run_record(instance=name, instances=names) for name in names}
    for record in records.values():
        begun(metadata, writer, record)
    stores = {name: RunStore(metadata.name, writer, records[name]) for name in names}
    metadata.runs.update_one({"_id": "c"}, {"$set": {"format": 0}})
    found = Peers(metadata, stores["b"]).coordinator(StopToken())
    assert found is not None and found.instance == "a"
    assert Peers(metadata, stores["a"]).coordinator(StopToken()) is None
    with pytest.raises(OperationError):
        Peers(metadata, stores["b"]).others(StopToken())


class _Reads(CommandListener):
    """Records the `afterClusterTime` of reads of run records; None for a read without it."""

    def __init__(self) -> None:
        self.waited_for: list[Any] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.waited_for.append(event.command.get("readConcern", {}).get("afterClusterTime"))

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


def test_an_instance_reads_no_record_that_is_older_than_its_own(pair: Pair) -> None:
    """Let a follower save its record after the coordinator: its next read must include the coordinator's save.

    Otherwise, a read from a new primary could show the coordinator before a failure, and a resumed follower would join
    the commit that the failure has withdrawn.
    """
    reads, names = _Reads(), ("a", "b")
    with MongoClient[dict[str, Any]](pair.destination.uri, event_listeners=[reads]) as client:
        metadata, writer = client[METADATA_DATABASE], ClusterWriter(client, False, StopToken())
        coordinator, follower = (
            begun(metadata, writer, run_record(instance=name, instances=names)) for name in names
        )
        for state in (State.FAILED, State.RUNNING):
            coordinator.update(state=state)
            saved_at = client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
            follower.update(state=state)
            found = Peers(metadata, follower).coordinator(StopToken())
            assert found is not None and found.state is state
            assert reads.waited_for[-1] is not None and reads.waited_for[-1] >= saved_at


def test_a_start_that_fails_after_its_record_was_saved_can_be_repeated(
    pair: Pair, tmp_path: Path
) -> None:
    """Let a start fail at its first command after it has saved the run record: a second start must succeed.

    This command is listDatabases, which finds the other syncs.
    """
    client = pair.destination.client

    def calls() -> int:
        status = client.admin.command("serverStatus")
        return int(status["metrics"]["commands"]["listDatabases"]["total"])

    with pair.daemon(tmp_path).running() as daemon:
        before = calls()
        assert daemon.post("preflight", daemon.start_body()).status_code == 200
        with failing(client, refused("listDatabases"), {"skip": calls() - before}):
            answer = daemon.post("start", daemon.start_body())
        assert answer.json()["error"] == "InternalError"
        assert daemon.progress()["state"] == "IDLE"
        daemon.start()
        daemon.commit()


@pytest.mark.parametrize("commands", [["ping"], ["ping", "delete"]], ids=" and ".join)
def test_a_start_whose_engine_cannot_be_created_can_be_repeated(
    pair: Pair, tmp_path: Path, commands: list[str]
) -> None:
    """Let the measurement of the round-trip time fail; in one case, also the deletion of the saved run record.

    The start must fail, and a second start must succeed.
    """
    client = pair.destination.client
    with pair.daemon(tmp_path).running() as daemon:
        with failing(client, refused(*commands)):
            answer = daemon.post("start", daemon.start_body())
        assert answer.json()["error"] == "InternalError"
        assert daemon.progress()["state"] == "IDLE"
        assert bool(saved_instances(client[METADATA_DATABASE])) is ("delete" in commands)
        daemon.start()
        daemon.commit()


@pytest.mark.in_turns
@pytest.mark.parametrize("loses_lease", [False, True], ids=["keeps the lease", "loses the lease"])
def test_an_active_daemon_deletes_the_record_of_a_failed_start(
    pair: Pair, tmp_path: Path, loses_lease: bool
) -> None:
    """Fail a start and the deletion of its record: a daemon with `--standby` must not run this sync later.

    The daemon must delete the record while it is active, or when it becomes active again.
    """
    client = pair.destination.client
    metadata = client[METADATA_DATABASE]
    with pair.daemon(tmp_path, "--standby").running() as daemon:
        with failing(client, refused("ping", "delete")):
            answer = daemon.post("start", daemon.start_body())
            assert answer.json()["error"] == "InternalError"
            assert saved_instances(metadata)
            if loses_lease:
                metadata[LEASES].update_one({}, {"$set": {"holder": "another daemon"}})
                wait_for(lambda: daemon.progress()["role"] == "standby", "the daemon is a standby")
        wait_for(lambda: not saved_instances(metadata), "the record is deleted")
        wait_for(lambda: role_of(daemon) == "active", "the daemon is active")
        assert daemon.progress()["state"] == "IDLE"
        daemon.start()
        daemon.commit()


def refused(*commands: str) -> dict[str, Any]:
    """Return the data of a fail point that refuses these commands of a daemon with an error that is not retried."""
    return {"failCommands": [*commands], "errorCode": 9, "appName": APPLICATION}


def test_a_takeover_keeps_changes_saved_after_the_record_was_read(pair: Pair) -> None:
    """Change the saved run record after a successor has read it, and before the successor takes the run over.

    The successor must see the change: for example, it must know that a cluster is blocked, to lift the block later.
    """
    client = pair.destination.client
    writer = ClusterWriter(client, False, StopToken())
    owner = begun(client[METADATA_DATABASE], writer, run_record(owner="first"))
    stale = owner.record
    owner.update(found_blocked={"cluster0": False})
    taken = RunStore.take_over(client[METADATA_DATABASE], writer, stale)
    assert taken.record.found_blocked == {"cluster0": False}
    assert load_run(client[METADATA_DATABASE], stale.instance) == taken.record
    for late in (
        lambda: owner.update(can_write=True),
        lambda: RunStore.take_over(client[METADATA_DATABASE], writer, stale),
    ):
        with pytest.raises(OperationError) as raised:
            late()
        assert raised.value.kind is SUPERSEDED
    taken.update(can_write=True)


def test_a_failure_that_is_only_shown_is_never_saved(pair: Pair) -> None:
    """Show a failure without saving it, then save another field of the record: the failure must not be saved.

    A restart would not continue a sync whose saved state is FAILED.
    """
    client = pair.destination.client
    store = begun(
        client[METADATA_DATABASE], ClusterWriter(client, False, StopToken()), run_record()
    )
    failure = Failure("ClusterUnreachable", "It does not answer.")
    store.show(state=State.FAILED, failure=failure)
    store.update(epoch=7)
    assert (store.record.state, store.record.failure, store.record.epoch) == (
        State.FAILED,
        failure,
        7,
    )
    saved = load_run(client[METADATA_DATABASE], store.record.instance)
    assert saved is not None
    assert (saved.state, saved.failure, saved.epoch) == (State.RUNNING, None, 7)
    store.update(state=State.RUNNING, failure=None)
    assert store.record == load_run(client[METADATA_DATABASE], store.record.instance)


@pytest.fixture(scope="module")
def members() -> Iterator[ReplicaSet]:
    """Start a replica set of three members, whose primary can have writes that no secondary has yet."""
    with ReplicaSet(name="three", members=3) as started:
        yield started


def test_a_run_is_read_only_once_the_majority_has_it(members: ReplicaSet) -> None:
    with members.client(readConcernLevel="majority") as client, ThreadPoolExecutor() as executor:
        record = begun(
            client[METADATA_DATABASE], ClusterWriter(client, False, StopToken()), run_record()
        ).record
        with _without_followers(members):
            runs = client[METADATA_DATABASE].get_collection("runs", write_concern=WriteConcern(1))
            runs.update_one({"_id": record.instance}, {"$set": {"beat": 99}})
            assert load_runs(client[METADATA_DATABASE])[0].beat == record.beat
            found = executor.submit(load_run, client[METADATA_DATABASE], record.instance)
            asked = {"command.find": "runs", "command.readConcern.level": "linearizable"}
            wait_for(lambda: found.done() or _running(client, asked), "the read")
        newest = found.result()
    assert newest is not None and newest.beat == 99


@contextmanager
def _without_followers(members: ReplicaSet) -> Iterator[None]:
    """Stop the replication to the secondaries during the block, so that only the primary has new writes."""
    secondaries = [each for each in members.members if each is not members.primary()]
    try:
        for each in secondaries:
            _stop_following(each, "alwaysOn")
        yield
    finally:
        for each in secondaries:
            _stop_following(each, "off")


def _stop_following(member: Mongod, mode: str) -> None:
    with MongoClient[Any](member.address, directConnection=True) as client:
        client.admin.command({"configureFailPoint": "stopReplProducer", "mode": mode})


def _running(client: Client, query: dict[str, Any]) -> bool:
    return bool(client.admin.command({"currentOp": 1, **query})["inprog"])


def test_rows_of_an_earlier_run_are_deleted_by_a_new_one(pair: Pair, daemon: Daemon) -> None:
    """Insert documents of an earlier run into the metadata, and start a sync: these documents must be deleted.

    Such a document could make the new run believe that a collection is already copied.
    """
    pair.source.client.d.c.insert_one({"_id": 1})
    metadata = pair.destination.client[METADATA_DATABASE]
    names = ("collections", "collectionsReversed", "partitions", "partitionsReversed")
    for name in names:
        metadata[name].insert_many({"_id": f"left {n}"} for n in range(3))
    daemon.start()
    daemon.commit()
    pair.assert_equal()
    left = {"_id": {"$type": "string"}}
    assert [metadata[name].count_documents(left) for name in names] == [0] * len(names)
