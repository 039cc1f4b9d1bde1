"""Behaviours with time-series collections, whose measurements the server stores in buckets."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pymongo.errors import OperationFailure

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, nothing

_BEGIN = datetime(2024, 1, 1)
_LONG = 10**9
WEATHER = {"timeField": "at", "metaField": "place", "granularity": "seconds"}


def measure(db: AnyDatabase, name: str, number: int, first: int = 0) -> None:
    db[name].insert_many(
        {"at": _BEGIN + timedelta(seconds=n), "place": n % 5, "temperature": n / 7}
        for n in range(first, first + number)
    )


def weather(db: AnyDatabase) -> None:
    db.create_collection("weather", timeseries=WEATHER, expireAfterSeconds=_LONG)
    db.create_collection("dropped", timeseries={"timeField": "at"})
    db.create_collection("collated", timeseries=WEATHER, collation={"locale": "en"})
    for name in ("weather", "dropped", "collated"):
        measure(db, name, 200)
    db.weather.create_index([("place", 1), ("at", -1)], name="by place")
    db.weather.create_index("temperature", hidden=True)


@behaviour(fill=weather)
def time_series_measure(db: AnyDatabase) -> None:
    measure(db, "weather", 300, 100)
    for n in range(20):
        # Insert each measurement by itself, so that the server updates buckets.
        measure(db, "collated", 1, 400 + n)
    db.weather.delete_many({"place": 3})
    db.weather.update_many({"place": 1}, {"$set": {"place": 7}})


@behaviour(fill=weather)
def time_series_modify(db: AnyDatabase) -> None:
    db.command({"collMod": "weather", "expireAfterSeconds": _LONG - 1})
    db.command({"collMod": "weather", "timeseries": {"granularity": "minutes"}})
    db.command({"collMod": "weather", "index": {"name": "temperature_1", "hidden": False}})
    measure(db, "weather", 300, 1000)
    db.command({"collMod": "weather", "timeseries": {"granularity": "hours"}})
    db.collated.create_index([("place", -1)])
    db.command({"collMod": "collated", "index": {"name": "place_-1", "hidden": True}})
    db.weather.drop_index("by place")


@behaviour(fill=weather)
def time_series_create_and_drop(db: AnyDatabase) -> None:
    db.dropped.drop()
    db.dropped.insert_one({"_id": "plain now"})
    series = {"timeField": "at", "metaField": "place"}
    db.create_collection("new", timeseries=series, expireAfterSeconds=_LONG)
    measure(db, "new", 50)
    db.command({"collMod": "new", "expireAfterSeconds": "off"})
    db.command({"create": "seen", "viewOn": "weather", "pipeline": []})
    db.create_collection("again", timeseries=WEATHER)
    db.again.drop()
    db.create_collection("again", timeseries={"timeField": "at", "granularity": "hours"})
    measure(db, "again", 10)
    db.plain.insert_one({"_id": 1})
    db.plain.drop()
    db.create_collection("plain", timeseries=WEATHER)


@behaviour(fill=weather)
def time_series_drop_database(db: AnyDatabase) -> None:
    db.client.drop_database(db.name)
    db.create_collection("weather", timeseries=WEATHER)
    measure(db, "weather", 5)


@behaviour(fill=nothing)
def time_series_that_the_source_refused(db: AnyDatabase) -> None:
    """Try to create a time-series collection: the server refuses this, but keeps its `system.buckets` collection."""
    _refused(db, "s")
    db.plain.insert_one({"_id": 1})


@behaviour(fill=nothing)
def time_series_on_buckets_that_were_there(db: AnyDatabase) -> None:
    _refused(db, "s")
    db.drop_collection("over s")
    db.create_collection("s", timeseries={"timeField": "at"})
    measure(db, "s", 10)


def _refused(db: AnyDatabase, name: str) -> None:
    view = {"create": f"over {name}", "viewOn": name, "pipeline": []}
    db.command({**view, "collation": {"locale": "en"}})
    with pytest.raises(OperationFailure):
        db.create_collection(name, timeseries={"timeField": "at"})
