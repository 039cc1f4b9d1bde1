"""Tests preflights: they must report why a start would be refused, estimate the sync, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from syncsvc.metadata import METADATA_DATABASE
from tests.integration.test_bad_input import GOOD
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for

LEFT = "__mdb_internal_mongosync"


def preflight(daemon: Daemon, **options: Any) -> dict[str, Any]:
    answer = daemon.post("preflight", {**GOOD, **options})
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["success"]) == (200, True), body
    return body


def told(answer: dict[str, Any]) -> list[str]:
    return [each["error"] for each in answer["violations"]]


def everything(side: Side) -> dict[str, Any]:
    """Return the hashes of all databases of a cluster except admin and local, and its mode of user write blocking."""
    client = side.client
    names = [name for name in client.list_database_names() if name not in ("admin", "local")]
    status = client.admin.command("serverStatus")
    return {
        "hashes": {name: client[name].command("dbHash")["md5"] for name in sorted(names)},
        "blocked": status["repl"].get("userWriteBlockMode"),
    }


@contextmanager
def untouched(pair: Pair, daemon: Daemon) -> Iterator[None]:
    before = [everything(side) for side in (pair.source, pair.destination)]
    yield
    assert [everything(side) for side in (pair.source, pair.destination)] == before
    assert daemon.progress()["state"] == "IDLE"


def assert_both_tell(daemon: Daemon, expected: list[str], **options: Any) -> list[str]:
    """Fail unless a preflight reports exactly the `expected` errors, and a start is refused with the first of them.

    Return the descriptions of the violations in the preflight.
    """
    found = preflight(daemon, **options)
    assert told(found) == expected
    texts = [each["errorDescription"] for each in found["violations"]]
    refused = daemon.post("start", {**GOOD, **options})
    body = refused.json()
    assert refused.status_code in (400, 409)
    assert (body["success"], body["error"]) == (False, expected[0])
    if len(texts) == 1:
        assert body["errorDescription"] == texts[0]
    else:
        assert all(f"{name}: " in body["errorDescription"] for name in expected)
    return texts


def fill(pair: Pair) -> None:
    database = pair.source.client.shop
    database.orders.insert_many([{"_id": n, "pad": "p" * 100} for n in range(1000)])
    database.orders.create_index("when", expireAfterSeconds=10**8)
    database.orders.create_index([("hashed", "hashed")])
    database.create_collection("view", viewOn="orders", pipeline=[])
    pair.source.client.other.c.insert_one({"_id": 1})
    pair.source.client.other.create_collection("weather", timeseries={"timeField": "at"})
    pair.source.client.other.weather.insert_one({"at": datetime(2026, 1, 1)})


def test_a_preflight_estimates_and_changes_nothing(pair: Pair, daemon: Daemon) -> None:
    fill(pair)

    def window() -> int | None:
        known: int | None = preflight(daemon)["estimates"]["oplogWindowSeconds"]
        return known

    with untouched(pair, daemon):
        wait_for(lambda: window() is not None, "the oplog spans a second")
        answer = preflight(daemon)
        fields = {"success", "violations", "warnings", "missingFeatures", "estimates"}
        assert set(answer) == fields
        assert (answer["violations"], answer["warnings"]) == ([], [])
        estimates = answer["estimates"]
        statistics = pair.source.client.shop.command("collStats", "orders")
        buckets = pair.source.client.other.command("collStats", "system.buckets.weather")
        assert estimates["namespaces"] == 4
        # One bucket holds all measurements of the time-series collection.
        assert estimates["documents"] == 1002
        assert estimates["bytes"] == statistics["size"] + 14 + buckets["size"]
        assert estimates["indexes"] == 2
        assert 0 < estimates["diskNeededBytes"] < estimates["diskFreeBytes"]
        assert 0 < estimates["memoryNeededBytes"] < estimates["memoryAvailableBytes"]
        assert estimates["copySeconds"] == 0
        assert estimates["oplogWindowSeconds"] > 0
        filtered = preflight(
            daemon,
            includeNamespaces=[{"database": "shop", "collections": ["orders"]}],
            buildIndexes="excludeHashedAfterCopy",
            verification={"enabled": False},
        )["estimates"]
        assert (filtered["namespaces"], filtered["documents"]) == (1, 1000)
        assert (filtered["indexes"], filtered["memoryNeededBytes"]) == (1, None)
    # A start without violations succeeds; a second one is then refused because of the state.
    options = {"buildIndexes": "excludeHashedAfterCopy", "copyInNaturalOrder": [{"database": "."}]}
    daemon.start(**options, detectRandomId=False, skipDiskSpaceCheck=True)
    daemon.wait_until_committable()
    assert told(preflight(daemon)) == ["InvalidState", "MetadataLeftOver", "DestinationNotEmpty"]
    daemon.commit()
    indexes = pair.destination.client.shop.orders.index_information()
    assert set(indexes) == {"_id_", "when_1"}


def test_all_violations_are_reported_at_once(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    pair.destination.client.mine.c.insert_one({"_id": 1})
    pair.destination.client[LEFT].resumeData.insert_one({"_id": "coordinator"})
    reserved = pair.destination.client[METADATA_DATABASE]
    reserved.runs.insert_one({"_id": "another"})
    with daemon.no_room(), untouched(pair, daemon):
        texts = assert_both_tell(
            daemon,
            [
                *("ReversibleNeedsWriteBlocking", "ReversibleWithFilter"),
                *("ReversibleWithoutIndexes", "ShardingNotApplicable", "MetadataLeftOver"),
                *("MetadataLeftOver", "DestinationNotEmpty", "TTLNotVerifiable"),
                *("InsufficientMemory", "InsufficientDestinationDiskSpace"),
            ],
            reversible=True,
            buildIndexes="never",
            includeNamespaces=[{"database": "shop"}],
            sharding={"shardingEntries": []},
        )
        said = " ".join(texts)
        address = pair.destination.client.admin.command("hello")["primary"]
        assert f"The destination cluster1 ({address}) holds user databases: mine. " in said
        assert f"The database {LEFT} holds the metadata of mongosync. " in said
        assert (
            "mongosync_reserved_for_internal_use holds the metadata of a sync (instances: another). "
            in said
        )
        assert "The TTL indexes of shop.orders would be missing" in said
        assert "buildIndexes is never: when_1. " in said
        assert "may need 428 MB of memory, but only 100 MB are available to this process. " in said
        assert "only 0 MB are free. " in said
        # Without their causes, the other violations disappear.
        assert_both_tell(
            daemon,
            [
                *("WriteBlockingWithFilter", "MetadataLeftOver", "MetadataLeftOver"),
                "DestinationNotEmpty",
            ],
            enableUserWriteBlocking=True,
            excludeNamespaces=[{"database": "other"}],
            verification={"enabled": False},
            skipDiskSpaceCheck=True,
        )
        assert_both_tell(
            daemon,
            [
                *("InvalidRequest", "MetadataLeftOver", "MetadataLeftOver"),
                *("DestinationNotEmpty", "InsufficientMemory"),
            ],
            includeNamespaces=[{"databaseRegex": {"pattern": "("}}],
        )


def test_the_profile_of_a_database_does_not_count_as_data(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    profiled = pair.destination.client.profiled
    profiled.command("profile", 2)
    try:
        profiled.c.find_one()
        assert profiled.list_collection_names() == ["system.profile"]
        assert told(preflight(daemon)) == []
    finally:
        profiled.command("profile", 0)


@pytest.fixture
def one_cluster_twice(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    other_address = pair.source.uri.replace("127.0.0.1", "localhost")
    with Daemon(pair.source.uri, other_address, tmp_path).running() as daemon:
        yield daemon


def test_one_cluster_under_two_addresses_is_refused(pair: Pair, one_cluster_twice: Daemon) -> None:
    fill(pair)
    with untouched(pair, one_cluster_twice):
        (text,) = assert_both_tell(one_cluster_twice, ["SameCluster"])
        assert "lead to a replica set with the ID" in text
