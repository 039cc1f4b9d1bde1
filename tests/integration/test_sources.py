"""Sources whose change streams tell less: large events, servers before 6.0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox import ReplicaSet
from tests.support import writes
from tests.support.behaviours import UPDATES
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.phases import PHASES, When, writes_in

MEGABYTE = 1 << 20


def large_keys(client: writes.AnyClient) -> None:
    """An event has the document, its key, and the key again, twice as long, in its resume token: more than 16 MB."""
    large = client.d.large
    for number in range(2):
        key = f"{number}" + "k" * (3 * MEGABYTE)
        large.insert_one({"_id": key, "n": number, "pad": "p" * (5 * MEGABYTE)})
    client.d.c.update_one({"_id": 1}, {"$set": {"between": 1}})
    large.update_one({"_id": key}, {"$set": {"pad": "q" * (8 * MEGABYTE)}})
    large.delete_one({"n": 0})
    client.d.c.insert_one({"_id": "after"})


@pytest.mark.parametrize("when", [When.COPY, When.APPLY], ids=lambda when: when.name)
def test_events_that_are_too_large_to_be_sent(pair: Pair, daemon: Daemon, when: When) -> None:
    writes.fill(pair.source.client)
    with writes_in(when, daemon):
        large_keys(pair.source.client)
    daemon.commit()
    pair.assert_equal()


def test_a_key_that_is_too_large_for_any_event_fails_by_name(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    pair.source.client.d.c.insert_one({"_id": "k" * (6 * MEGABYTE)})
    assert daemon.wait_for_state("FAILED")["error"] == "EventTooLarge"


@pytest.fixture
def unknowing(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon that asks a server of 6.0 as it would ask one of 5.0."""
    process = pair.daemon(tmp_path)
    process.believe_the_source_is_old()
    try:
        process.run()
        yield process
    finally:
        process.close()


@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_data_of_a_source_that_tells_no_uuids(pair: Pair, unknowing: Daemon, when: When) -> None:
    client = pair.source.client
    for each in UPDATES:
        each.fill(client[each.name])
    with writes_in(when, unknowing):
        for each in UPDATES:
            each.change(client[each.name])
    unknowing.commit()
    pair.assert_equal()


def create(client: writes.AnyClient) -> None:
    client.d.new.insert_one({"_id": 1})


def rename(client: writes.AnyClient) -> None:
    client.d.c.rename("d")


def drop(client: writes.AnyClient) -> None:
    client.d.c.drop()


def drop_database(client: writes.AnyClient) -> None:
    client.drop_database("d")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (create, "create on d.new"),
        (rename, "rename on d.c"),
        (drop, "drop on d.c"),
        (drop_database, "drop on d."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_definitions_of_such_a_source_fail_by_name(
    pair: Pair, unknowing: Daemon, change: Callable[[writes.AnyClient], None], said: str
) -> None:
    writes.fill(pair.source.client)
    unknowing.start()
    unknowing.wait_until_committable()
    change(pair.source.client)
    progress = unknowing.wait_for_state("FAILED")
    assert progress["error"] == "UnsupportedChange"
    assert said in progress["errorDescription"]


def test_definitions_outside_of_the_filter_do_no_harm(pair: Pair, unknowing: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.x.c.insert_one({"_id": 1})
    unknowing.start(includeNamespaces=[{"database": "d"}])
    unknowing.wait_until_committable()
    pair.source.client.x.new.insert_one({"_id": 1})
    pair.source.client.x.c.rename("d")
    pair.source.client.drop_database("x")
    pair.source.client.d.c.insert_one({"_id": "after"})
    unknowing.commit()
    pair.assert_equal()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"create": "empty"}, "create on d.empty"),
        ({"create": "series", "timeseries": {"timeField": "t"}}, "create on d.series"),
        ({"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n"}]}, "createIndexes or dropIndexes on d.c"),
    ],
)  # fmt: skip
def test_what_such_a_source_does_not_tell_is_found_at_commit(
    pair: Pair, unknowing: Daemon, change: dict[str, Any], said: str
) -> None:
    writes.fill(pair.source.client)
    unknowing.start(verification={"enabled": False})
    unknowing.wait_until_committable()
    pair.source.client.d.command(change)
    unknowing.ask_for_commit()
    progress = unknowing.wait_for_state("FAILED")
    assert progress["error"] == "UnsupportedChange"
    assert said in progress["errorDescription"]


@pytest.fixture(scope="module")
def old_source() -> Iterator[ReplicaSet]:
    """A replica set of the server that the environment names."""
    binary = os.environ.get("SYNCSVC_MONGOD_50")
    if not binary:
        pytest.skip("SYNCSVC_MONGOD_50 names no mongod of version 5.0")
    with ReplicaSet(name="old", binary=Path(binary)) as source:
        yield source


def test_a_real_source_of_5_0(old_source: ReplicaSet, pair: Pair, daemon: Daemon) -> None:
    successor = Daemon(old_source.uri, pair.destination.uri, daemon.folder / "old")
    successor.folder.mkdir()
    with old_source.client() as client:
        writes.fill(client)
        try:
            successor.run()
            with writes_in(When.APPLY, successor):
                writes.single_document_writes(client)
                writes.hot_document(client)
            successor.commit()
        finally:
            successor.close()
        assert client.d.c.count_documents({}) == pair.destination.client.d.c.count_documents({})
        assert list(client.d.c.find().sort("_id")) == list(
            pair.destination.client.d.c.find().sort("_id")
        )
