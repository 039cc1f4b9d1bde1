"""Time-series collections: their buckets are copied and replayed like any documents."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.conftest import Pair
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.phases import PHASES, When, writes_in

BEGIN = datetime(2024, 1, 1)
LONG = 10**9
WEATHER = {"timeField": "at", "metaField": "place", "granularity": "seconds"}


def fill(client: writes.AnyClient) -> None:
    writes.fill(client)
    client.d.create_collection("weather", timeseries=WEATHER, expireAfterSeconds=LONG)
    client.d.create_collection("dropped", timeseries={"timeField": "at"})
    client.d.create_collection("collated", timeseries=WEATHER, collation={"locale": "en"})
    for name in ("weather", "dropped", "collated"):
        measure(client, name, 200)
    client.d.weather.create_index([("place", 1), ("at", -1)], name="by place")
    client.d.weather.create_index("temperature", hidden=True)


def measure(client: writes.AnyClient, name: str, number: int, first: int = 0) -> None:
    client.d[name].insert_many(
        {"at": BEGIN + timedelta(seconds=n), "place": n % 5, "temperature": n / 7}
        for n in range(first, first + number)
    )


def change(client: writes.AnyClient) -> None:
    d = client.d
    measure(client, "weather", 300, 100)
    for n in range(20):
        # One at a time: updates of a bucket.
        measure(client, "collated", 1, 400 + n)
    d.weather.delete_many({"place": 3})
    d.weather.update_many({"place": 1}, {"$set": {"place": 7}})
    d.command({"collMod": "weather", "expireAfterSeconds": LONG - 1})
    d.command({"collMod": "weather", "timeseries": {"granularity": "minutes"}})
    d.command({"collMod": "weather", "index": {"name": "temperature_1", "hidden": False}})
    measure(client, "weather", 300, 1000)
    d.collated.create_index([("place", -1)])
    d.command({"collMod": "collated", "index": {"name": "place_-1", "hidden": True}})
    d.dropped.drop()
    d.dropped.insert_one({"_id": "plain now"})
    d.create_collection(
        "new", timeseries={"timeField": "at", "metaField": "place"}, expireAfterSeconds=LONG
    )
    measure(client, "new", 50)
    d.command({"collMod": "new", "expireAfterSeconds": "off"})
    d.command({"create": "seen", "viewOn": "weather", "pipeline": []})
    client.gone.create_collection("t", timeseries=WEATHER)
    client.drop_database("gone")
    d.create_collection("again", timeseries=WEATHER)
    d.again.drop()
    d.create_collection("again", timeseries={"timeField": "at", "granularity": "hours"})
    measure(client, "again", 10)


@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_time_series_arrive(pair: Pair, daemon: Daemon, when: When) -> None:
    fill(pair.source.client)
    with writes_in(when, daemon):
        change(pair.source.client)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.parametrize("when", [When.COPY, When.APPLY], ids=lambda when: when.name)
def test_time_series_arrive_without_raw_diffs(pair: Pair, daemon: Daemon, when: When) -> None:
    daemon.force_classic_updates()
    fill(pair.source.client)
    with writes_in(when, daemon):
        change(pair.source.client)
    daemon.commit()
    pair.assert_equal()


def test_a_filter_names_them_as_users_do(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    with writes_in(
        When.APPLY, daemon, includeNamespaces=[{"database": "d", "collections": ["weather", "new"]}]
    ):
        change(pair.source.client)
    daemon.commit()
    names = ["new", "system.buckets.new", "system.buckets.weather", "system.views", "weather"]
    assert sorted(pair.destination.client.d.list_collection_names()) == names
    for name in ("new", "weather"):
        of_source, of_destination = (
            list(side.client.d[f"system.buckets.{name}"].find().sort("_id"))
            for side in (pair.source, pair.destination)
        )
        assert of_source == of_destination


def test_a_lost_bucket_is_found(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    delete = {"delete": "system.buckets.weather", "deletes": [{"q": {}, "limit": 1}]}
    pair.destination.client.d.command({**delete, "mayBypassWriteBlocking": True})
    daemon.post("commit")
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "VerificationFailed"
    assert "d.system.buckets.weather" in progress["errorDescription"]


def test_a_source_that_does_not_tell_of_them_is_refused(pair: Pair, daemon: Daemon) -> None:
    daemon.believe_the_source_is_old()
    fill(pair.source.client)
    said = ("d.collated, d.dropped, d.weather",)
    assert_refused(daemon.post("start", GOOD), 409, "UnsupportedCollection", said)
