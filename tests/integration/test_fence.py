"""Tests that servers refuse a late write of a FencedWriter: after its caller has given up, or after a takeover.

On a sharded cluster, each shard must have marks: documents that a FencedWriter updates, so that the shard refuses the
writes of earlier engines. Other tests make writes that must succeed, for example to capped collections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pymongo
import pytest
from pymongo.client_session import ClientSession
from pymongo.errors import NetworkTimeout, OperationFailure, PyMongoError

from syncsvc.errors import SUPERSEDED
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.saved import fence as fence_module
from syncsvc.saved.fence import Fence, FencedWriter
from syncsvc.source.filling import is_being_filled
from tests.support.failpoints import delayed, failing, times
from tests.support.members import ThreeMembers
from tests.support.pair import SHARDED, Pair, across
from tests.support.sharded.cluster import ShardedCluster
from tests.support.waiting import PATIENCE, wait_for
from verifier.cluster.connect import Client, connect
from verifier.cluster.inventory import find_named, list_raw
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken

_APPLICATION = "late"
_HELD_MS = 4_000
# Longer than the clients of these tests wait for an answer.
_WAIT_MS = 1_000
MANY = range(20)


@pytest.fixture
def client(pair: Pair) -> Iterator[Client]:
    """Return a client of the destination with a short socket timeout, so that delays look like lost connections."""
    with closing(connect(pair.destination.uri, _APPLICATION, socket_ms=_WAIT_MS)) as client:
        yield client


def writer(client: Client, run: UUID, epoch: int = 1, sharded: bool = False) -> FencedWriter:
    return FencedWriter(client, False, StopToken(), Fence(run, epoch), METADATA_DATABASE, sharded)


@contextmanager
def held(pair: Pair, name: str) -> Iterator[None]:
    """Make the server delay the next command with this name that the tests' client sends.

    After the block, wait until the command has run or was refused.
    """
    client = pair.destination.client
    data = {
        "failCommands": [name],
        "appName": _APPLICATION,
        "blockConnection": True,
        "blockTimeMS": _HELD_MS,
    }
    with failing(client, data, times(1)):
        yield
        assert _held(client, name), f"{name} ended too early to prove anything"
        wait_for(lambda: not _held(client, name), f"the held {name} has ended")


def _held(client: Any, name: str) -> bool:
    return bool(delayed(client, name, _APPLICATION))


def update(value: int, ids: Any = (1,)) -> dict[str, Any]:
    updates = [{"q": {"_id": each}, "u": {"$set": {"v": value}}, "upsert": True} for each in ids]
    return {"update": "c", "updates": updates}


def delete(ids: Any) -> dict[str, Any]:
    return {"delete": "c", "deletes": [{"q": {"_id": each}, "limit": 1} for each in ids]}


def insert(ids: Any) -> dict[str, Any]:
    return {"insert": "c", "documents": [{"_id": each} for each in ids], "ordered": False}


# For each case: the command that is held, the write that sends it, whether the write is one transaction, and a later
# write, whose effect must stay.
CASES: dict[str, tuple[str, dict[str, Any], bool, dict[str, Any]]] = {
    "update": ("update", update(1), False, update(2)),
    "updates": ("update", update(1, MANY), True, update(2, MANY)),
    "commit": ("commitTransaction", update(1, MANY), True, update(2, MANY)),
    "insert": ("insert", insert(MANY), False, delete(MANY)),
    # The second attempt is a no-op, and the server does not record that it has run.
    "delete of nothing": ("delete", delete(MANY), False, insert(MANY)),
    "deletes of nothing": ("delete", delete(MANY), True, insert(MANY)),
}


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("case", CASES)
def test_a_delayed_write_is_refused_after_its_retry(pair: Pair, client: Client, case: str) -> None:
    name, command, as_transaction, later = CASES[case]
    writes = writer(client, uuid4())
    with held(pair, name):
        writes.run("d", command, as_transaction=as_transaction)
        writes.run("d", later)
        expected = _documents(pair)
    assert _documents(pair) == expected


def _documents(pair: Pair) -> list[Any]:
    return list(pair.destination.client.d.c.find().sort("_id", 1))


def test_a_write_whose_time_is_used_up_fails_with_its_own_error(pair: Pair, client: Client) -> None:
    """Let a write time out: the error must be that of the write, not that of an update that `settle` sends."""
    writes = writer(client, uuid4())
    with held(pair, "update"), impatient(0.5, in_total=0.5), pymongo.timeout(0.5):
        with pytest.raises(NetworkTimeout) as raised:
            writes.run("d", update(1))
    assert "_settle" not in [each.name for each in raised.traceback]
    writes.settle()
    writes.run("d", update(2))
    assert _documents(pair) == [{"_id": 1, "v": 2}]


@pytest.mark.in_turns
@pytest.mark.parametrize("as_transaction", [False, True])
def test_a_delayed_write_without_retry_is_refused(
    pair: Pair, client: Client, as_transaction: bool
) -> None:
    writes = writer(client, uuid4())
    with held(pair, "update"):
        with pytest.raises(PyMongoError):
            writes.run("d", update(1, MANY), retried=False, as_transaction=as_transaction)
        assert _documents(pair) == []
    assert _documents(pair) == []


def test_a_delayed_write_of_a_cancelled_thread_is_refused(pair: Pair, client: Client) -> None:
    stop = StopToken()
    writes = FencedWriter(client, False, stop, Fence(uuid4(), 1), METADATA_DATABASE, False)
    ended: list[BaseException] = []

    def write() -> None:
        try:
            writes.run("d", update(1))
        except BaseException as error:  # noqa: B036 - checked below
            ended.append(error)

    with held(pair, "update"):
        thread = threading.Thread(target=write)
        thread.start()
        wait_for(lambda: _held(pair.destination.client, "update"), "the update is held")
        stop.stop("enough")
        thread.join()
        assert [type(each).__name__ for each in ended] == ["Cancelled"]
        writes.settle()
    assert _documents(pair) == []


def test_a_delayed_write_of_an_earlier_engine_is_refused(pair: Pair, client: Client) -> None:
    run, stop = uuid4(), StopToken()
    earlier = FencedWriter(client, False, stop, Fence(run, 1), METADATA_DATABASE, False)
    with held(pair, "update"):
        stop.stop("pause")
        with pytest.raises(BaseException, match="pause"):
            earlier.run("d", update(1, MANY))
        writer(client, run, epoch=2).settle()
        assert _documents(pair) == []
    assert _documents(pair) == []


@across(SHARDED)
def test_shards_refuse_an_earlier_engine(pair: Pair, client: Client) -> None:
    run = uuid4()
    earlier, later = (writer(client, run, epoch, sharded=True) for epoch in (1, 2))
    earlier.run("d", update(1))
    later.settle()
    for command in (update(3), insert(MANY), delete([1])):
        with pytest.raises(OperationError) as refused:
            earlier.run("d", command)
        assert refused.value.kind.name == "Superseded"
    assert _documents(pair) == [{"_id": 1, "v": 1}]


@across(SHARDED)
def test_marks_in_a_collection_that_is_not_sharded_do_no_harm(pair: Pair, client: Client) -> None:
    """Write a mark before the collection of marks is sharded: `settle` must spread the collection over all shards.

    This happens if two instances start at the same time after a shard was added.
    """
    destination = pair.destination.client
    destination[METADATA_DATABASE][fence_module.FENCES].insert_one({"_id": "mark"})
    writer(client, uuid4(), epoch=2, sharded=True).settle()
    _assert_marks_on_all_shards(pair)


@pytest.mark.full
def test_a_shard_that_is_added_during_a_sync_refuses_late_writes() -> None:
    """Settle one slot (session), add a shard, and settle the other slots: the new shard must have marks, too."""
    with (
        ShardedCluster(shards=1, routers=1) as cluster,
        ReplicaSet(name="added", cluster_role="shardsvr") as added,
        closing(connect(cluster.uri, _APPLICATION)) as client,
    ):
        writes = writer(client, uuid4(), epoch=2, sharded=True)
        writes.run("d", update(1))
        cluster.add_shard(added)
        writes.settle()
        assert _counted(added)
        assert _counted(*cluster.shards)


@pytest.mark.full
def test_a_shard_that_is_being_removed_adds_to_the_marks() -> None:
    """Settle while a shard is draining: MongoDB 6.0 also spreads the marks over it, so there must be as many."""
    with (
        ShardedCluster(routers=1) as cluster,
        cluster.config.client() as config,
        closing(connect(cluster.uri, _APPLICATION)) as client,
    ):
        name = cluster.shards[-1].name
        config.admin.command({"_configsvrRemoveShard": name, "writeConcern": {"w": "majority"}})
        writer(client, uuid4(), epoch=2, sharded=True).settle()
        marks = fence_module._SLOTS * fence_module._MARKS_A_SHARD
        assert _counted(*cluster.shards) == marks * len(cluster.shards)


def _counted(*shards: ReplicaSet) -> int:
    """Return the number of marks on these shards."""
    total = 0
    for each in shards:
        with each.client() as client:
            total += client[METADATA_DATABASE][fence_module.FENCES].count_documents({})
    return total


def _assert_marks_on_all_shards(pair: Pair) -> None:
    config = pair.destination.client.config
    name = f"{METADATA_DATABASE}.{fence_module.FENCES}"
    found = config.collections.find_one({"_id": name})
    assert found is not None
    chunks = config.chunks.distinct("shard", {"uuid": found["uuid"]})
    assert len(chunks) == len(pair.destination.shards)


class Watched(FencedWriter):
    """A FencedWriter that calls `before` with the name of each command, before it sends the command."""

    def __init__(self, client: Client, before: Callable[[str], None]) -> None:
        self._before = before
        super().__init__(client, False, StopToken(), Fence(uuid4(), 2), METADATA_DATABASE, True)

    def _once(
        self, database: str, command: dict[str, Any], session: ClientSession | None
    ) -> dict[str, Any]:
        self._before(next(iter(command)))
        return super()._once(database, command, session)


@contextmanager
def held_before(pair: Pair, *names: str) -> Iterator[None]:
    """Let a new writer write d.c in a thread. During the block, the first command with one of these names is held."""
    reached, opened = threading.Event(), threading.Event()

    def before(name: str) -> None:
        if name in names:
            reached.set()
            assert opened.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(Watched(pair.destination.client, before).run, "d", update(1))
        try:
            assert reached.wait(PATIENCE)
            yield
        finally:
            opened.set()
        written.result()


def _marks(pair: Pair) -> int:
    return pair.destination.client[METADATA_DATABASE][fence_module.FENCES].count_documents({})


@across(SHARDED)
def test_one_thread_of_a_writer_shards_the_marks(pair: Pair) -> None:
    """Let threads settle their first slots at the same moment, as after an outage: all marks must stay."""
    threads = 8
    start = threading.Barrier(threads)
    sharding: set[int] = set()

    def before(name: str) -> None:
        if name == "shardCollection":
            sharding.add(threading.get_ident())

    writes = Watched(pair.destination.client, before)

    def write(number: int) -> None:
        start.wait(PATIENCE)
        writes.run("d", update(number, [number]))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(threads)))
    assert len(sharding) == 1
    assert len(_documents(pair)) == threads
    _assert_marks_on_all_shards(pair)


@across(SHARDED)
def test_a_writer_keeps_the_marks_that_another_one_has_sharded(pair: Pair) -> None:
    """Hold a writer that has seen no marks while another one, like that of another instance, shards and writes them."""
    with held_before(pair, "drop", "shardCollection"):
        writer(pair.destination.client, uuid4(), epoch=2, sharded=True).run("d", update(2, [2]))
        written = _marks(pair)
    assert _marks(pair) == 2 * written
    _assert_marks_on_all_shards(pair)


@across(SHARDED)
def test_a_mark_that_is_written_before_the_marks_are_sharded_does_no_harm(pair: Pair) -> None:
    with held_before(pair, "shardCollection"):
        pair.destination.client[METADATA_DATABASE][fence_module.FENCES].insert_one({"_id": "mark"})
    assert _documents(pair) == [{"_id": 1, "v": 1}]
    _assert_marks_on_all_shards(pair)


def test_an_earlier_engine_is_refused_and_superseded(pair: Pair, client: Client) -> None:
    run = uuid4()
    earlier, later = (writer(client, run, epoch) for epoch in (1, 2))
    earlier.run("d", update(1))
    later.settle()
    later.end_definitions("cluster1")
    commands: list[Callable[[], Any]] = [
        lambda: earlier.run("d", update(3)),
        lambda: earlier.run("d", update(3, MANY), as_transaction=True),
        lambda: earlier.run("d", delete([1]), retried=False),
    ]
    for command in commands:
        with pytest.raises(OperationError) as refused:
            command()
        assert refused.value.kind.name == "Superseded"
    assert _documents(pair) == [{"_id": 1, "v": 1}]


def test_slots_that_fail_at_the_same_time_raise_one_error(pair: Pair, client: Client) -> None:
    """Take the run over while the engine settles its slots (sessions): a single error must be raised.

    The first slot is settled; several others are refused at the same time.
    """
    calls = count()
    several = threading.Event()

    def confirm() -> None:
        number = next(calls)
        if number == 2:
            several.set()
        if number > 0:
            assert several.wait(PATIENCE)
            raise OperationError(SUPERSEDED, "Another process has taken the run over.")

    fence = Fence(uuid4(), epoch=2)
    writes = FencedWriter(client, False, StopToken(), fence, METADATA_DATABASE, False, confirm)
    with pytest.raises(OperationError) as refused:
        writes.settle()
    assert refused.value.kind is SUPERSEDED


def test_a_refused_mark_settles_nothing(pair: Pair, client: Client) -> None:
    fence = Fence(uuid4(), epoch=2, slots=1)
    writes = FencedWriter(client, False, StopToken(), fence, METADATA_DATABASE, False)
    data = {"failCommands": ["update"], "appName": _APPLICATION, "errorCode": 2}
    with failing(pair.destination.client, data), pytest.raises(OperationFailure):
        writes.settle()
    assert fence.unsettled
    writes.settle()
    assert not fence.unsettled


def test_collections_that_do_not_support_transactions(pair: Pair, client: Client) -> None:
    d = pair.destination.client.d
    d.create_collection("c", capped=True, size=100_000)
    d.c.insert_many({"_id": n, "v": 0} for n in MANY)
    writes = writer(client, uuid4())
    for value in (1, 2):
        assert writes.run("d", update(value, MANY), as_transaction=True)["n"] == len(MANY)
    assert {each["v"] for each in _documents(pair)} == {2}


def test_a_refused_document_does_not_affect_the_others(pair: Pair, client: Client) -> None:
    d = pair.destination.client.d
    d.c.create_index("v", unique=True, partialFilterExpression={"v": {"$gt": 99}})
    d.c.insert_one({"_id": "taken", "v": 100})
    statements = update(1, MANY)["updates"] + update(100, ["clash"])["updates"]
    command = {"update": "c", "updates": statements, "ordered": False}
    reply = writer(client, uuid4()).run("d", command, as_transaction=True)
    assert reply["n"] == len(MANY)
    assert [(each["index"], each["code"]) for each in reply["writeErrors"]] == [(20, 11000)]


def test_a_write_uses_a_session_of_the_run(pair: Pair, client: Client) -> None:
    """Check that a write uses a session whose ID is derived from the run's ID, not a session of the driver.

    A server can refuse late writes of an earlier process only if all processes of a sync use the same sessions.
    """
    run = uuid4()
    writer(client, run).run("d", update(1))
    sessions = pair.destination.client.config.transactions.distinct("_id.id")
    (slot,) = Fence(run, 1, slots=fence_module._SLOTS)._free[-1:]
    assert slot.lsid in sessions


@pytest.mark.full
def test_a_connection_that_was_opened_during_maintenance_is_replaced() -> None:
    """Open connections to a member in maintenance mode, then make the member the primary: all calls must succeed.

    The driver refuses sessions on such a connection, so it must be replaced.
    """
    with ThreeMembers("kept") as members, ExitStack() as opened:
        chosen = next(each for each in members.members if each is not members.primary())
        uri = f"mongodb://{chosen.address}/?directConnection=true"
        # Each client has its own connection, because the first call replaces the connections of its client.
        hand, writing, reading, locking = (
            opened.enter_context(closing(connect(uri, _APPLICATION))) for _ in range(4)
        )
        hand.admin.command("replSetMaintenance", True)
        wait_for(lambda: not hand.admin.command("hello")["secondary"], "maintenance")
        for client in (writing, reading, locking):
            client.admin.command("ping")
        hand.admin.command("replSetMaintenance", False)
        wait_for(lambda: hand.admin.command("hello")["secondary"], "the end of maintenance")
        wait_for(lambda: _is_elected(hand), "the member is the primary")
        writer(writing, uuid4()).run("d", update(1))
        assert read(lambda: list_raw(reading, "d"), StopToken())[0]["name"] == "c"
        hand.d.create_collection("capped", capped=True, size=1000)
        capped = find_named(hand, Namespace("d", "capped"))
        assert capped is not None
        assert not read(lambda: is_being_filled(locking, capped), StopToken())


def _is_elected(client: Client) -> bool:
    with suppress(PyMongoError):
        client.admin.command("replSetStepUp")
    return bool(client.admin.command("hello")["isWritablePrimary"])
