"""Tests limits at run time: daemons obey and share them, and keep them after restarts and takeovers."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import pytest
from bson import encode

from syncsvc.limits import Limit, limits_of
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from syncsvc.saved.limits import LIMITS, LimitsStore
from syncsvc.source.cluster_load import read_load
from tests.support.daemon import Daemon
from tests.support.duo import running_duo
from tests.support.failpoints import FailPoints, blocked
from tests.support.fleet import Fleet
from tests.support.metrics import scrape
from tests.support.pair import SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.proxy import Network, Proxy
from tests.support.waiting import wait_for
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The type of the fixture `record_property`.
Record = Callable[[str, object], None]

UNLIMITED = {
    "copyBytesPerSecond": None,
    "copyDocumentsPerSecond": None,
    "eventsPerSecond": None,
    "threads": None,
}


def saved(pair: Pair) -> dict[str, Any]:
    found = pair.destination.client[METADATA_DATABASE].limits.find_one({"_id": "limits"})
    assert found is not None
    return limits_of(found["limits"]).shown()


def fill(pair: Pair, documents: int) -> int:
    """Insert `documents` documents of equal size into two collections, and return the size of one document in bytes."""
    for name in ("one", "two"):
        pair.shard(f"d.{name}")
        pair.source.client.d[name].insert_many(
            {"_id": n, "pad": "p" * 100} for n in range(documents // 2)
        )
    return len(encode({"_id": 0, "pad": "p" * 100}))


def wait_until_throttled(daemon: Daemon, what: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        throttled: dict[str, Any] | None = daemon.progress()["throttledBy"]
        return throttled if throttled and throttled["what"] == what else None

    return wait_for(look, f"throttled by {what}")


def copied(pair: Pair) -> int:
    return sum(pair.destination.client.d[name].count_documents({}) for name in ("one", "two"))


@pytest.mark.full
@pytest.mark.slow
def test_limits_in_every_state(pair: Pair, daemon: Daemon) -> None:
    fill(pair, 2_000)
    night = {"from": "00:00", "to": "23:59", "limits": {"copyDocumentsPerSecond": 1}}
    assert daemon.limits() == {**daemon.limits(), "saved": True, "effective": UNLIMITED}
    daemon.limits(copyDocumentsPerSecond=20, windows=[night])
    before = daemon.limits(windows=[], threads=1)
    assert (before["saved"], before["limits"]["copyDocumentsPerSecond"]) == (False, 20)
    refused = daemon.patch("limits", {"threads": 0, "auto": {"speed": 1}})
    assert refused.status_code == 400
    for name in ("threads", "auto.speed"):
        assert name in refused.json()["errorDescription"]
    daemon.start()
    began = monotonic()
    throttled = wait_until_throttled(daemon, "copyDocumentsPerSecond")
    assert throttled["reason"] == "copyDocumentsPerSecond is 20."
    wait_for(lambda: daemon.limits()["saved"], "saved limits")
    assert saved(pair) == daemon.limits()["limits"]
    shown = scrape(daemon)
    assert shown["mongosync_limit"] == {("copyDocumentsPerSecond",): 20.0, ("threads",): 1.0}
    assert shown["mongosync_throttled"][("copyDocumentsPerSecond",)] == 1
    wait_for(lambda: copied(pair) > 40, "documents")
    # The amount that the limit allows for one second may be copied at once.
    assert copied(pair) <= 20 * (monotonic() - began + 1) + 2
    daemon.kill()
    daemon.run()
    assert daemon.limits()["limits"] == saved(pair)
    wait_until_throttled(daemon, "copyDocumentsPerSecond")
    daemon.pause()
    after = daemon.limits(copyDocumentsPerSecond=None, eventsPerSecond=5)
    assert after["effective"] == {**UNLIMITED, "eventsPerSecond": 5, "threads": 1}
    assert saved(pair) == after["limits"]
    daemon.resume()
    daemon.wait_until_applying()
    pair.source.client.d.one.insert_many({"_id": f"late {n}"} for n in range(100))
    wait_until_throttled(daemon, "eventsPerSecond")
    daemon.commit()  # a limit does not make the downtime longer
    pair.assert_equal()
    assert daemon.limits(threads=None)["effective"] == {**UNLIMITED, "eventsPerSecond": 5}


def test_a_reset_keeps_the_limits_in_memory(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.one.insert_one({"_id": 1})
    daemon.start()
    daemon.limits(eventsPerSecond=1000)
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    kept = daemon.limits()
    assert (kept["saved"], kept["limits"]["eventsPerSecond"]) == (False, 1000)
    assert METADATA_DATABASE not in pair.destination.client.list_database_names()
    daemon.start()
    daemon.commit()
    assert saved(pair)["eventsPerSecond"] == 1000
    pair.assert_equal()


@across(TO_SHARDED)
def test_concurrent_changes_are_all_kept(pair: Pair) -> None:
    client = pair.destination.client
    names = [each.value for each in Limit]

    def change(name: str) -> None:
        store = LimitsStore(client[METADATA_DATABASE], ClusterWriter(client, False, StopToken()))
        for amount in range(1, 6):
            store.change({name: amount})

    with ThreadPoolExecutor() as executor:
        list(executor.map(change, names))
    assert {name: saved(pair)[name] for name in names} == dict.fromkeys(names, 5)


@pytest.mark.full
@across(SHARDED)
def test_instances_share_the_limits(pair: Pair, fleet: Fleet) -> None:
    pair.shard("d.one")
    pair.source.client.d.one.insert_many({"_id": n} for n in range(100))
    first, second = fleet.daemons
    # Each instance gets one limit before the start. After the start, the instances must share both limits.
    first.limits(copyBytesPerSecond=1_000_001)
    second.limits(eventsPerSecond=500)
    fleet.start()
    for each in fleet.daemons:
        wait_for(
            lambda each=each: each.limits()["effective"]
            == {**UNLIMITED, "copyBytesPerSecond": 500_000, "eventsPerSecond": 250},
            "shares",
        )
    fleet.wait_until_committable()
    for each in fleet.daemons:
        assert each.post("reset", {"confirm": "cluster1"}).ok
    fleet.wait_for_state("IDLE")
    # The start of the second instance must not undo a change at the first one.
    first.limits(eventsPerSecond=400)
    fleet.start()
    for each in fleet.daemons:
        wait_for(
            lambda each=each: each.limits()["effective"]
            == {**UNLIMITED, "copyBytesPerSecond": 500_000, "eventsPerSecond": 200},
            "shares",
        )
    second.limits(copyBytesPerSecond=None)
    wait_for(lambda: first.limits()["effective"]["copyBytesPerSecond"] is None, "a change")
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_standby_changes_and_inherits_the_limits(pair: Pair, tmp_path: Path) -> None:
    pair.source.client.d.one.insert_one({"_id": 1})
    with running_duo(pair, tmp_path, leases=(600, 600)) as duo:
        assert duo.standby.limits(eventsPerSecond=300)["saved"]
        active = duo.active
        wait_for(lambda: active.limits()["effective"]["eventsPerSecond"] == 300, "a change")
        active.start()
        active.limits(threads=2)
        assert active.terminate() == 0
        duo.await_takeover("SIGTERM")
        shown = duo.active.limits()["effective"]
        assert shown == {**UNLIMITED, "eventsPerSecond": 300, "threads": 2}
        duo.active.commit()
        pair.assert_equal()


@pytest.mark.full
@pytest.mark.slow
@across(TO_SHARDED)
def test_a_limited_copy_is_killed_and_continues(pair: Pair, daemon: Daemon) -> None:
    size = fill(pair, 3_000)
    daemon.limits(copyBytesPerSecond=100 * size)
    daemon.start()
    for least in (100, 400, 900):
        wait_for(lambda least=least: copied(pair) > least, "documents")
        daemon.kill()
        daemon.run()
    daemon.limits(copyBytesPerSecond=None)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("limit", ["copyBytesPerSecond", "copyDocumentsPerSecond"])
def test_a_limited_copy_meets_its_limit(
    pair: Pair, daemon: Daemon, record_property: Record, limit: str
) -> None:
    """Measure the rate of a copy with a limit for a minute: it must be within 10 % of the limit."""
    size = fill(pair, 100_000)
    rate = 500
    daemon.limits(**{limit: rate * size if limit == "copyBytesPerSecond" else rate})
    daemon.start()
    wait_until_throttled(daemon, limit)
    began, before = monotonic(), copied(pair)
    wait_for(lambda: monotonic() - began > 60, "a minute", seconds=120)
    found = (copied(pair) - before) / (monotonic() - began)
    load = round(os.getloadavg()[0], 1)
    measured = {"limit": limit, "rate": rate, "found": round(found, 1), "load": load}
    record_property("throttled copy", measured)
    print(measured)
    assert 0.9 * rate < found < 1.1 * rate
    daemon.limits(**{limit: None})
    daemon.commit()
    pair.assert_equal()


class _Linked(ReplicaSet):
    """A replica set of one member that clients reach only through a proxy, as through a network link."""

    def __init__(self, network: Network) -> None:
        super().__init__(name="destination")
        self._network = network
        self._proxy: Proxy | None = None

    def _advertised(self, member: Mongod) -> str:
        self._proxy = self._proxy or self._network.proxy(member.port)
        return self._proxy.address


def test_auto_measures_the_clusters_before_a_start(daemon: Daemon) -> None:
    def latencies() -> list[float | None]:
        return [each["latencyMS"] for each in daemon.limits()["measured"].values()]

    assert latencies() == [None, None]
    daemon.limits(auto={"enabled": True})
    wait_for(lambda: None not in latencies(), "the load of both clusters")
    daemon.limits(auto=None)
    wait_for(lambda: latencies() == [None, None], "no measurement")


@across(TO_SHARDED)
def test_a_slow_shard_is_measured(pair: Pair) -> None:
    """Delay the reads of one shard after the other: the latency of the cluster must show the delay of each."""
    reads = ("find", "clusterFind", "listDatabases")
    for shard in pair.destination.shards:
        with FailPoints(shard, application=None) as points, points.armed(blocked(0.5), reads):
            latency = read_load(pair.destination.client, METADATA_DATABASE, LIMITS).latency
            assert latency is not None and latency >= 0.5, shard.name


@pytest.mark.full
@pytest.mark.slow
def test_auto_keeps_the_latency_below_its_limit(
    replica_sets: Pair, tmp_path: Path, record_property: Record
) -> None:
    """Copy over a 3 MB/s link, first without a limit of the destination's latency, and then with such a limit (`auto`).

    The median latency must exceed the limit before it is set, and stay below it afterwards.
    """
    with Network() as network, _Linked(network) as behind, behind.client() as client:
        pair = Pair(replica_sets.source, Side(behind.uri, client))
        pair.source.empty()
        for name in ("one", "two", "three", "four"):
            pair.source.client.d[name].insert_many(
                {"_id": n, "pad": "p" * 10_000} for n in range(5_000)
            )
        with pair.daemon(tmp_path).running() as daemon:
            record_property("auto", _watch_latency(pair, daemon, network))
            pair.assert_equal()


def _watch_latency(pair: Pair, daemon: Daemon, network: Network) -> dict[str, Any]:
    """Run a sync over a slow link, limit the latency of the destination during the copy, and return measured latencies.

    The result contains the latencies `without` the limit, those `limited` by it, and the `limit`, all in milliseconds.
    """
    threshold = 200
    names = (
        "maxSourceLatencyMS",
        "maxDestinationLatencyMS",
        "maxQueue",
        "maxReplicationLagSeconds",
    )
    daemon.limits(auto={"enabled": True, **dict.fromkeys(names)})
    # The link is slow before the start: on a busy machine, the copy could otherwise end before it is measured.
    with network.slow(bytes_per_second=3e6):
        daemon.start()
        wait_for(lambda: daemon.progress()["info"] == "collection copy", "the copy")
        without = _latencies(daemon, 10)
        daemon.limits(auto={"maxDestinationLatencyMS": threshold})
        throttled = wait_until_throttled(daemon, "copyBytesPerSecond")
        assert throttled["reason"].startswith("auto: the latency of the destination is ")
        _latencies(daemon, 10)  # the data that was sent before has to pass the link
        limited = _latencies(daemon, 30)
        measured = {"limit": threshold, "without": without, "limited": limited}
        print(measured)
        assert median(limited) < threshold < median(without)
        assert daemon.progress()["info"] == "collection copy"
    daemon.limits(auto=None)
    daemon.commit()
    return measured


def _latencies(daemon: Daemon, number: int) -> list[float]:
    """Return the next `number` latencies of the destination in milliseconds; the daemon measures one each second."""
    found: list[float] = []

    def enough() -> bool:
        latency = daemon.limits()["measured"]["destination"]["latencyMS"]
        if latency is not None and latency not in found[-1:]:
            found.append(latency)
        return len(found) > number

    wait_for(enough, "latencies")
    return found[1:]
