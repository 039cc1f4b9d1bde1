"""Tests the special cases of time-series collections; `test_behaviours` changes such collections in each phase."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from syncsvc.engine.run.points import Point
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.behaviours import time_series
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import APPLICATION, failing
from tests.support.forged import report_out, uuid_of
from tests.support.pair import Pair, across_topologies
from tests.support.phases import When, writes_in


def fill(client: writes.AnyClient) -> None:
    writes.fill(client)
    time_series.weather(client.d)


@pytest.mark.in_turns
@across_topologies
def test_a_filter_selects_time_series_by_their_own_names(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    selected = [{"database": "d", "collections": ["weather", "new"]}]
    with writes_in(When.APPLY, daemon, includeNamespaces=selected):
        time_series.time_series_measure.change(pair.source.client.d)
        time_series.time_series_create_and_drop.change(pair.source.client.d)
    daemon.commit()
    names = ["new", "system.buckets.new", "system.buckets.weather", "system.views", "weather"]
    assert sorted(pair.destination.client.d.list_collection_names()) == names
    for name in ("new", "weather"):
        of_source, of_destination = (
            list(side.client.d[f"system.buckets.{name}"].find().sort("_id"))
            for side in (pair.source, pair.destination)
        )
        assert of_source == of_destination


@pytest.mark.full
@across_topologies
def test_a_lost_bucket_is_found(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    delete = {"delete": "system.buckets.weather", "deletes": [{"q": {}, "limit": 1}]}
    pair.destination.client.d.command({**delete, "mayBypassWriteBlocking": True})
    daemon.ask_for_commit()
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "VerificationFailed"
    assert "d.system.buckets.weather" in progress["errorDescription"]


def test_time_series_of_an_old_source_are_refused(pair: Pair, daemon: Daemon) -> None:
    daemon.kill()
    daemon.believe_the_source_is_old()
    daemon.run()
    fill(pair.source.client)
    said = ("d.collated, d.dropped, d.weather",)
    assert_refused(daemon.post("start", GOOD), 409, "UnsupportedCollection", said)


def test_a_time_series_without_buckets_is_left_out(pair: Pair, daemon: Daemon) -> None:
    """Create time-series collections that have only a view and no buckets: the sync must not copy the views.

    A server leaves such a view behind if a time-series collection is dropped while it is being created.
    """
    d = pair.source.client.d
    d.c.insert_one({"_id": 1})
    for name in ("before", "during"):
        d.create_collection(name, timeseries={"timeField": "t"})
        view = d["system.views"].find_one({"_id": f"d.{name}"})
        d.drop_collection(name)
        d.client.admin.command({"applyOps": [{"op": "i", "ns": "d.system.views", "o": view}]})
        if name == "before":
            daemon.start()
            daemon.wait_until_committable()
    assert {"before", "during"} <= {*d.list_collection_names()}
    daemon.commit()
    assert pair.destination.client.d.list_collection_names() == ["c"]


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("build", ["beforeDataCopy", "afterDataCopy", "never"])
@pytest.mark.parametrize("when", [When.BEFORE, When.APPLY])
@prepared(Daemon.believe_the_destination_is_new)
def test_an_index_that_the_destination_creates_itself_is_dropped(
    pair: Pair, daemon: Daemon, build: str, when: When
) -> None:
    d = pair.source.client.d
    d.c.insert_one({"_id": 1})
    never_repaired = {"enabled": True, "repair": "never"}
    with writes_in(when, daemon, buildIndexes=build, verification=never_repaired):
        for name in ("weather", "plain"):
            d.create_collection(name, timeseries=time_series.WEATHER)
            time_series.measure(d, name, 50)
        d.weather.create_index([("place", 1), ("at", -1)], name="by place")
    daemon.commit()
    found = {
        name: [each["name"] for each in pair.destination.client.d[name].list_indexes()]
        for name in ("weather", "plain")
    }
    assert found == {"weather": ["by place"] if build != "never" else [], "plain": []}


def test_a_ttl_index_of_a_time_series_expires_measurements_after_the_commit(
    pair: Pair, daemon: Daemon
) -> None:
    """Servers of 7.0 and newer have such indexes, with a filter; 6.0 accepts them only on the buckets."""
    d = pair.source.client.d
    d.create_collection("weather", timeseries=time_series.WEATHER)
    time_series.measure(d, "weather", 10)
    ttl = {"key": {"control.min.at": 1}, "name": "ttl", "expireAfterSeconds": 10**9}
    d.command({"createIndexes": "system.buckets.weather", "indexes": [ttl]})
    daemon.start(verification={"enabled": True, "repair": "never"})
    daemon.commit()
    pair.assert_equal()


def test_a_time_series_that_is_replaced_during_its_copy_keeps_its_name(
    pair: Pair, daemon: Daemon
) -> None:
    """Kill the daemon while it copies new time series, and replace them while it is down."""
    d = pair.source.client.d
    d.c.insert_one({"_id": 1})
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    time_series.weather(d)
    daemon.kill_at(Point.BATCH_WRITTEN, "d.system.buckets.weather")
    daemon.launch()
    daemon.wait_until_killed()
    for name in ("weather", "dropped", "collated"):
        d.drop_collection(name)
    time_series.weather(d)
    daemon.run()
    daemon.commit()
    pair.assert_equal()


def test_a_mark_for_mixed_schemas_is_copied(pair: Pair, daemon: Daemon) -> None:
    """Sync a time-series collection that is marked for mixed schemas, as patched servers mark it (SERVER-91195)."""
    flag = "app_metadata=(timeseriesBucketsMayHaveMixedSchemaData=true)"
    engine = {"wiredTiger": {"configString": flag}}
    d = pair.source.client.d
    d.create_collection("marked", timeseries=time_series.WEATHER, storageEngine=engine)
    time_series.measure(d, "marked", 10)
    daemon.start()
    daemon.commit()
    (found,) = pair.destination.client.d.list_collections(filter={"name": "marked"})
    assert found["options"]["storageEngine"] == engine


@pytest.mark.parametrize(
    "options",
    [{}, {"includeNamespaces": [{"database": "d", "collections": ["weather"]}]}],
    ids=["all", "filtered"],
)
@prepared(Daemon.forge_events, Daemon.hide_drops)
def test_buckets_that_out_replaces_are_copied_again(
    pair: Pair, daemon: Daemon, options: dict[str, Any]
) -> None:
    """Replace a time-series collection as `$out` does from MongoDB 7.0.3 on: only a rename of its buckets says so."""
    client = pair.source.client
    fill(client)
    replaced = uuid_of(client, "d.system.buckets.weather")
    daemon.start(**options)
    daemon.wait_until_committable()
    client.d.weather.drop()
    client.d.create_collection("weather", timeseries=time_series.WEATHER)
    time_series.measure(client.d, "weather", 50)
    report_out(client, "d.weather", replaced)
    time_series.measure(client.d, "weather", 50, 1000)
    daemon.commit()
    of_source, of_destination = (
        list(side.client.d["system.buckets.weather"].find().sort("_id"))
        for side in (pair.source, pair.destination)
    )
    assert of_source == of_destination != []


def _hide(client: writes.AnyClient) -> str:
    """Insert into collections while creating them as time series, until a server hides measurements; return the name.

    Usually, the first attempt succeeds.
    """

    def insert(name: str) -> None:
        with suppress(OperationFailure):
            client.d[name].insert_one({"at": datetime.now(UTC), "n": 1})

    for name in (f"s{n}" for n in range(500)):
        inserting = threading.Thread(target=insert, args=(name,))
        inserting.start()
        with suppress(OperationFailure):
            client.d.command({"create": name, "timeseries": {"timeField": "at"}})
        inserting.join()
        kinds = {each["name"]: each["type"] for each in client.d.list_collections()}
        if kinds.get(name) == "collection" and f"system.buckets.{name}" in kinds:
            return name
        client.d[name].drop()
    raise AssertionError("no server has hidden measurements")


def test_hidden_measurements_are_named_before_the_start(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    time_series.weather(client.d)
    name = _hide(client)
    client.d[name].insert_one({"at": datetime.now(UTC), "n": 2})
    (warning,) = daemon.post("preflight", daemon.start_body()).json()["warnings"]
    assert warning.startswith(
        f"The source has buckets of d.{name}, but no time-series collection of such a name"
    )
    excluded = daemon.start_body(excludeNamespaces=[{"database": "d", "collections": [name]}])
    assert daemon.post("preflight", excluded).json()["warnings"] == []
    # Recover the measurements as the documentation says.
    client.admin.command({"renameCollection": f"d.{name}", "to": "d.regular"})
    client.d.create_collection(name, timeseries={"timeField": "at"}, check_exists=False)
    client.d[name].insert_many(list(client.d.regular.find()))
    assert sorted(each["n"] for each in client.d[name].find()) == [1, 2]
    assert daemon.post("preflight", daemon.start_body()).json()["warnings"] == []
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_hidden_measurements_of_the_sync_are_named_by_the_commit(
    pair: Pair, daemon: Daemon
) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    name = _hide(pair.source.client)
    daemon.commit()
    (warning,) = daemon.progress()["warnings"]
    assert warning.startswith(
        f"The source has buckets of d.{name}, but no time-series collection of such a name"
    )


def test_withheld_indexes_of_a_time_series_are_named_as_users_know_it(
    pair: Pair, daemon: Daemon
) -> None:
    writes.time_series(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    refusal = {"failCommands": ["createIndexes"], "errorCode": 67, "appName": APPLICATION}
    with failing(pair.destination.client, refusal):
        pair.source.client.d.series.create_index([("place", -1)])
        daemon.wait_for_warning("The indexes of d.series are withheld")
    assert '"namespace":"d.series"' in daemon.log.replace(": ", ":")
