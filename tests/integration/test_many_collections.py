"""Tests that a preflight and a start do not query one collection after the other.

Over a link with latency, this would take minutes if there are many collections.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from pymongo import MongoClient, monitoring

from syncsvc.engine.run.points import Point
from tests.integration.test_bad_input import GOOD
from tests.support.daemon import Daemon
from tests.support.failpoints import APPLICATION, Client, blocked, failing
from tests.support.pair import SHARDED, Pair, across
from tests.support.waiting import wait_for
from verifier.cluster.inventory import list_collections

NAMES = [f"c{number}" for number in range(8)]
# Long enough that several commands are seen at the same time, if they are sent at the same time.
DELAY = 2.0


def fill(pair: Pair) -> None:
    for name in NAMES:
        pair.source.client.d[name].insert_one({})


def delaying(command: str) -> dict[str, Any]:
    return {**blocked(DELAY).data, "failCommands": [command], "appName": APPLICATION}


def queries_several(client: Client, command: str) -> bool:
    """Return whether the service has several of these commands for collections of d in progress on the primary."""
    wanted = {"appName": APPLICATION, "command.$db": "d", f"command.{command}": {"$exists": True}}
    running = client.admin.aggregate([{"$currentOp": {}}, {"$match": wanted}])
    return len({each["command"][command] for each in running}) > 1


def test_a_preflight_measures_several_collections_at_once(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    source = pair.source.client
    with failing(source, delaying("dataSize")), ThreadPoolExecutor() as executor:
        answer = executor.submit(daemon.post, "preflight", GOOD)
        wait_for(lambda: queries_several(source, "dataSize"), "several collections are measured")
    estimates = answer.result().json()["estimates"]
    assert (estimates["namespaces"], estimates["documents"]) == (len(NAMES), len(NAMES))


def test_a_start_checks_several_new_collections_at_once(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    destination = pair.destination.client
    with ExitStack() as stack:
        with daemon.held_at(Point.COLLECTION_CREATED):
            daemon.start()
            daemon.wait_until_reached(Point.COLLECTION_CREATED)
            stack.enter_context(failing(destination, delaying("find")))
        wait_for(lambda: queries_several(destination, "find"), "several collections are checked")
    daemon.commit()
    pair.assert_equal()


class _Counting(monitoring.CommandListener):
    """Counts the commands of a client by their names."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.counts[event.command_name] += 1

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


@across(SHARDED)
def test_mongos_is_asked_once_for_all_shard_keys_and_names(pair: Pair) -> None:
    fill(pair)
    pair.shard("d.c0", {"_id": 1})
    pair.source.client.d.create_collection("series", timeseries={"timeField": "t"})
    pair.source.client.d.create_collection("view", viewOn="c0", pipeline=[])
    listener = _Counting()
    with MongoClient[dict[str, Any]](pair.source.uri, event_listeners=[listener]) as client:
        listed = {each.namespace.collection: each for each in list_collections(client)}
    assert listed.keys() == {*NAMES, "series", "view"}
    assert listed["c0"].shard_key == {"key": {"_id": 1}, "unique": False}
    assert all(listed[name].shard_key == {} for name in (*NAMES[1:], "series"))
    assert listed["view"].shard_key is None
    counts = listener.counts
    assert (counts["find"], counts["listCollections"]) == (1, 2)
    assert counts["listIndexes"] == len(NAMES) + 1
