"""Follows one sync through all of its phases, and checks its progress, namespaces, metrics and log lines.

The test client checks every answer against the OpenAPI description, so these tests do not check types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import IndexModel

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.metrics import scrape
from tests.support.pair import REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.selection import full
from tests.support.waiting import wait_for

DOCUMENTS = {"a.x": 300, "a.y": 20, "b.x": 1}
HELD = {
    Point.STARTED: "",
    Point.BATCH_WRITTEN: "a.x",
    Point.INDEXES_BUILT: "a.x",
    Point.EVENTS_APPLIED: "",
}
DURATIONS_TOLD = re.escape("Operation duration stats.")
UNKNOWN_LAG = {"overallLagSeconds": None, "crudLagSeconds": None, "ddlLagSeconds": None}
Line = dict[str, Any]


@pytest.fixture
def daemon(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    process = pair.daemon(tmp_path)
    process.report_often()
    with process.running():
        yield process


def fill(pair: Pair) -> None:
    for name, number in DOCUMENTS.items():
        database, collection = name.split(".")
        pair.source.client[database][collection].insert_many({"_id": n} for n in range(number))
    pair.source.client.a.x.create_index("n")
    pair.source.client.a.y.create_indexes([IndexModel("n"), IndexModel([("n", -1)])])


def collections(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {each["namespace"]: each for each in daemon.namespaces()["namespaces"]}


def wait_for_phases(daemon: Daemon, **phases: str) -> dict[str, dict[str, Any]]:
    """Wait until each namespace is in the given phase, and return the progress of all namespaces by name.

    Each keyword is a namespace with `_` in place of `.`; its value is the phase.
    """

    def look() -> dict[str, dict[str, Any]] | None:
        shown = collections(daemon)
        found = {name.replace(".", "_"): each["phase"] for name, each in shown.items()}
        return shown if found == phases else None

    return wait_for(look, str(phases))


def lines(daemon: Daemon) -> list[Line]:
    return [json.loads(line) for line in daemon.log.splitlines()]


def logged(daemon: Daemon, pattern: str) -> list[Line]:
    return [line for line in lines(daemon) if re.fullmatch(pattern, line["message"])]


def wait_until_logged(daemon: Daemon, message: str) -> Line:
    return wait_for(lambda: logged(daemon, re.escape(message)), message)[-1]


@pytest.mark.in_turns
@across(REPLICA_SETS, full(TO_SHARDED), SHARDED)
def test_each_phase_is_shown_in_progress(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    idle(daemon)
    with ExitStack() as held:
        released = {point: ExitStack() for point in HELD}
        for point, subject in HELD.items():
            released[point].enter_context(daemon.held_at(point, subject))
            held.enter_context(released[point])
        daemon.start(buildIndexes="afterDataCopy")
        look = {
            Point.STARTED: initializing,
            Point.BATCH_WRITTEN: copying,
            Point.INDEXES_BUILT: indexing,
            Point.EVENTS_APPLIED: draining,
        }
        for point, subject in HELD.items():
            daemon.wait_until_reached(point, subject)
            look[point](pair, daemon)
            released[point].close()
    applying(pair, daemon)
    paused(pair, daemon)
    daemon.commit()
    committed(pair, daemon)
    the_log(daemon)
    pair.assert_equal()


def idle(daemon: Daemon) -> None:
    shown = daemon.progress()
    known = {"state", "canCommit", "canWrite", "collectionCopy", "mongosyncID", "coordinatorID"}
    assert shown["collectionCopy"] == {"estimatedTotalBytes": 0, "estimatedCopiedBytes": 0}
    assert {name for name, value in shown.items() if value is not None} == known
    assert (daemon.namespaces()["namespaces"], daemon.namespaces()["next"]) == ([], None)


def initializing(pair: Pair, daemon: Daemon) -> None:
    shown = daemon.progress()
    assert shown["info"] == "initializing collections and indexes"
    assert shown["collectionCopy"] == {"estimatedTotalBytes": 1, "estimatedCopiedBytes": 0}
    assert (shown["lag"], shown["lagTimeSeconds"], shown["ceaStage"]) == (UNKNOWN_LAG, None, None)
    assert shown["verification"]["source"]["phase"] == "not started"
    assert "indexBuilding" not in shown
    assert collections(daemon) == {}


def copying(pair: Pair, daemon: Daemon) -> None:
    found = wait_for_phases(daemon, a_x="copying", a_y="copied", b_x="copied")
    assert (found["a.x"]["copiedDocuments"], found["a.x"]["estimatedTotalDocuments"]) == (0, 300)
    assert (found["a.y"]["copiedDocuments"], found["a.y"]["indexesBuilt"]) == (20, 0)
    shown = daemon.progress()
    assert (shown["info"], shown["canCommit"]) == ("collection copy", False)
    assert shown["collectionCopy"]["estimatedTotalBytes"] == copied_bytes(pair)
    wait_until_logged(daemon, "Completed writing 2 / 3 partitions to destination cluster")
    # These documents are inserted during the copy, and applied as change events after it.
    pair.source.client.a.x.insert_many({"_id": f"late {n}"} for n in range(5))


def copied_bytes(pair: Pair) -> int:
    """Return the total size in bytes of the documents that existed before the sync."""
    return sum(len(bson.encode({"_id": n})) for number in DOCUMENTS.values() for n in range(number))


def indexing(pair: Pair, daemon: Daemon) -> None:
    built = wait_for(
        lambda: (found := daemon.progress()["indexBuilding"])["indexesBuilt"] == 3 and found,
        "all indexes are built",
    )
    assert built == {
        **{"indexesBuilt": 3, "totalIndexesToBuild": 3},
        **{"collectionsFinished": 2, "collectionsTotal": 2},
    }
    assert daemon.progress()["info"] == "building indexes"
    assert {name: each["indexesBuilt"] for name, each in collections(daemon).items()} == {
        **{"a.x": 1, "a.y": 2, "b.x": 0},
    }


def draining(pair: Pair, daemon: Daemon) -> None:
    shown = daemon.progress()
    assert (shown["info"], shown["canCommit"]) == ("change event application", False)
    assert shown["ceaStage"] == "collection copy drain"
    assert shown["indexBuilding"]["collectionsFinished"] == 2


def applying(pair: Pair, daemon: Daemon) -> None:
    assert daemon.wait_until_committable()["ceaStage"] == "steady state"
    pair.source.client.b.create_collection("made")
    pair.source.client.b.made.insert_one({"_id": 1})
    wait_for(lambda: collections(daemon).get("b.made", {}).get("eventsApplied"), "b.made is there")
    shown: Any = wait_for(
        lambda: (found := daemon.progress())["lag"]["ddlLagSeconds"] is not None and found,
        "the lag of definitions is known",
    )
    assert set(shown["lag"].values()) == {shown["lagTimeSeconds"]}
    assert shown["verification"]["source"].keys() == shown["verification"]["destination"].keys()
    wait_until_logged(daemon, "Average Source CRUD events rate")
    # Wait before the commit: after the commit, these durations may never be logged.
    wait_for(
        lambda: any(
            each["CEADestinationWrite"]["numOperations"] for each in logged(daemon, DURATIONS_TOLD)
        ),
        "the durations of writes are logged",
    )


def paused(pair: Pair, daemon: Daemon) -> None:
    daemon.pause()
    pair.source.client.b.made.insert_one({"_id": 2})
    shown = daemon.progress()
    assert (shown["lag"], shown["lagTimeSeconds"]) == (None, None)
    # The oplogs of shards cannot be read.
    wait_for(
        lambda: pair.is_sharded
        or daemon.progress()["estimatedOplogTimeRemaining"] != "not checked yet",
        "the oplog is watched in the pause, too",
    )
    daemon.resume()
    wait_for(lambda: collections(daemon)["b.made"]["eventsApplied"] >= 2, "b.made is written to")


def committed(pair: Pair, daemon: Daemon) -> None:
    shown = daemon.progress()
    assert (shown["info"], shown["canWrite"]) == ("commit completed", True)
    assert set(shown["lag"].values()) == {0}
    assert "indexBuilding" not in shown and "estimatedOplogTimeRemaining" not in shown
    for side in shown["verification"].values():
        assert side["phase"] == "stream hashing"
        assert side["hashedDocumentCount"] >= sum(DOCUMENTS.values())
        assert side["scannedCollectionCount"] == side["totalCollectionCount"]
    the_namespaces(pair, daemon, shown)
    every = {("source",): 1, ("destination",): 1}
    wait_for(lambda: scrape(daemon)["mongosync_cluster_answers"] == every, "both clusters answer")
    metrics = scrape(daemon)
    assert metrics["mongosync_namespaces"][("copied",)] == 4
    assert metrics["mongosync_verification_phase"][("stream hashing",)] == 1
    assert metrics["mongosync_definitions_applied_total"][()] >= 1


def the_namespaces(pair: Pair, daemon: Daemon, progress: dict[str, Any]) -> None:
    found = collections(daemon)
    assert sorted(found) == ["a.x", "a.y", "b.made", "b.x"]
    assert {each["phase"] for each in found.values()} == {"copied"}
    assert sum(each["eventsApplied"] for each in found.values()) == progress["totalEventsApplied"]
    # Before the copy of a.x was held, it had read all documents in one batch. So it did not read later ones.
    assert {name: each["copiedDocuments"] for name, each in found.items()} == {
        **DOCUMENTS,
        "b.made": 0,
    }
    assert found["a.x"]["eventsApplied"] >= 5
    total = sum(each["copiedBytes"] for each in found.values())
    assert total == copied_bytes(pair) == progress["collectionCopy"]["estimatedCopiedBytes"]
    first = daemon.namespaces(limit=3)
    rest = daemon.namespaces(limit=3, after=first["next"])
    assert [*first["namespaces"], *rest["namespaces"]] == [found[name] for name in sorted(found)]
    assert rest["next"] is None
    assert [each["namespace"] for each in daemon.namespaces(database="b")["namespaces"]] == [
        *("b.made", "b.x"),
    ]


DURATIONS = (
    *("CollectionCopySourceRead", "CollectionCopyDestinationWrite"),
    *("CEASourceRead", "CEADestinationWrite"),
)
EXPECTED: dict[str, set[str]] = {
    "Version info": {"version", "os", "arch"},
    "Mongosync Options": {"cluster0", "cluster1", "port", "loadLevel", "verbosity"},
    "Mongosync HiddenFlags": set(),
    "Received request": {"uri", "method", "body", "clientIP", "traceID"},
    "sent response": {"status", "body", "traceID", "latency"},
    "Preflight checks completed.": set(),
    "Starting initializing collections and indexes phase": set(),
    "Starting collection copy phase": set(),
    "Completed writing 3 / 3 partitions to destination cluster": set(),
    "Starting change event application phase": set(),
    "Updating the in-memory phase from `collection copy` to `building indexes`.": set(),
    "Replication progress.": {"totalEventsApplied", "eventApplicationRatePerSecond", "lag"},
    "Operation duration stats.": {*DURATIONS},
    "Write Stats to Source and Destination Clusters.": {
        "EstimatedNumWritesOnSourceCluster",
        "NumWritesOnDestinationCluster",
    },
    "Average Source CRUD events rate": {"srcCRUDEventsPerSec"},
    "Commit handler called": set(),
}
LEVELS = {"debug", "info", "warn", "error", "fatal"}


def the_log(daemon: Daemon) -> None:
    """Fail unless the log has each expected message with the fields that log tools for mongosync read."""
    found = lines(daemon)
    assert {line["level"] for line in found} <= LEVELS
    assert len({line["serverID"] for line in found}) == 1
    assert {(line["mongosyncID"], line["pid"]) for line in found} == {("coordinator", daemon.pid)}
    for message, fields in EXPECTED.items():
        of_message = logged(daemon, re.escape(message))
        assert of_message and all(fields <= set(line) for line in of_message), message
    durations = logged(daemon, DURATIONS_TOLD)
    for name in DURATIONS:
        noted = next(line[name] for line in durations if line[name]["numOperations"])
        assert float(noted["averageDurationMs"]) <= float(noted["maximumDurationMs"])
        assert noted["numOperations"] >= 1
    answers = [line["body"] for line in logged(daemon, "sent response")]
    of_progress = [json.loads(body) for body in answers if "canCommit" in body]
    assert of_progress and all("state" in answer["progress"] for answer in of_progress)
