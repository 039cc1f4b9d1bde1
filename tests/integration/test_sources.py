"""Sources whose change streams are limited: events above 16 MB, and servers before 6.0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox import ReplicaSet
from tests.support import writes
from tests.support.behaviours import UPDATES
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.phases import PHASES, When, writes_in
from tests.support.resuming import assert_final, fails_again
from tests.support.waiting import wait_for

MEGABYTE = 1 << 20


def large_keys(client: writes.AnyClient) -> None:
    """Make writes whose change events are larger than 16 MB.

    Each event contains the document, its `_id`, and the `_id` again in its resume token.
    """
    large = client.d.large
    for number in range(2):
        key = f"{number}" + "k" * (3 * MEGABYTE)
        large.insert_one({"_id": key, "n": number, "pad": "p" * (5 * MEGABYTE)})
    client.d.c.update_one({"_id": 1}, {"$set": {"between": 1}})
    large.update_one({"_id": key}, {"$set": {"pad": "q" * (8 * MEGABYTE)}})
    large.delete_one({"n": 0})
    client.d.c.insert_one({"_id": "after"})


@pytest.mark.in_turns
@pytest.mark.parametrize("when", [When.COPY, When.APPLY], ids=lambda when: when.name)
def test_events_that_are_too_large_to_be_sent(pair: Pair, daemon: Daemon, when: When) -> None:
    writes.fill(pair.source.client)
    with writes_in(when, daemon):
        large_keys(pair.source.client)
    daemon.commit()
    pair.assert_equal()


def test_an_id_too_large_for_any_event_fails_the_sync_by_name(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    pair.source.client.d.c.insert_one({"_id": "k" * (6 * MEGABYTE)})
    assert daemon.wait_for_state("FAILED")["error"] == "EventTooLarge"
    assert_final(daemon)


@pytest.fixture
def unknowing(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon that treats the source, a server of MongoDB 6.0, like one of 5.0."""
    process = pair.daemon(tmp_path)
    process.believe_the_source_is_old()
    try:
        process.run()
        yield process
    finally:
        process.close()


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_documents_of_a_source_without_uuids_in_events_are_synced(
    pair: Pair, unknowing: Daemon, when: When
) -> None:
    client = pair.source.client
    some = UPDATES[::3]
    for each in some:
        each.fill(client[each.name])
    with writes_in(when, unknowing):
        for each in some:
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
def test_ddl_events_of_an_old_source_fail_the_sync_by_name(
    pair: Pair, unknowing: Daemon, change: Callable[[writes.AnyClient], None], said: str
) -> None:
    writes.fill(pair.source.client)
    unknowing.start()
    unknowing.wait_until_committable()
    change(pair.source.client)
    progress = unknowing.wait_for_state("FAILED")
    assert progress["error"] == "UnsupportedChange"
    assert said in progress["errorDescription"]
    fails_again(unknowing, "UnsupportedChange")


def test_a_sync_resumes_after_an_old_source_dropped_a_new_collection(
    pair: Pair, unknowing: Daemon
) -> None:
    writes.fill(pair.source.client)
    unknowing.start()
    unknowing.wait_until_committable()
    for number in range(2):
        pair.source.client.d.new.insert_many([{"_id": n, "round": number} for n in range(3)])
        assert unknowing.wait_for_state("FAILED")["error"] == "UnsupportedChange"
        pair.source.client.d.new.drop()
        unknowing.resume()
        unknowing.wait_until_committable()
    unknowing.commit()
    pair.assert_equal()


def test_ddl_events_outside_of_the_filter_are_ignored(pair: Pair, unknowing: Daemon) -> None:
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
    ("change", "said", "undo"),
    [
        ({"create": "empty"}, "d.empty was created. ", {"drop": "empty"}),
        ({"create": "series", "timeseries": {"timeField": "t"}}, "d.series was created. ", {"drop": "series"}),
        (
            {"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n"}]},
            "index n of d.c was created. ",
            {"dropIndexes": "c", "index": "n"},
        ),
    ],
)  # fmt: skip
def test_unreported_ddl_of_an_old_source_is_found_at_the_commit(
    pair: Pair, unknowing: Daemon, change: dict[str, Any], said: str, undo: dict[str, Any]
) -> None:
    writes.fill(pair.source.client)
    unknowing.start(verification={"enabled": False})
    unknowing.wait_until_committable()
    pair.source.client.d.command(change)
    unknowing.ask_for_commit()
    progress = unknowing.wait_for_state("FAILED")
    assert progress["error"] == "UnsupportedChange"
    assert said in progress["errorDescription"]
    pair.source.client.d.command(undo)
    unknowing.resume()
    unknowing.commit()
    pair.assert_equal()


@pytest.fixture
def watchful(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon that treats the source like one of MongoDB 5.0, and compares its definitions ten times a second."""
    process = pair.daemon(tmp_path)
    process.believe_the_source_is_old()
    process.watch_closely()
    try:
        process.run()
        yield process
    finally:
        process.close()


def index(name: str, **options: Any) -> dict[str, Any]:
    return {"createIndexes": "items", "indexes": [{"key": {name: 1}, "name": name, **options}]}


@dataclass(frozen=True)
class Undone:
    """A change of a definition that causes no event on a server before 6.0.

    `undo` are the commands that undo it, and `said` is the text of the warning.
    """

    change: tuple[dict[str, Any], ...]
    undo: tuple[dict[str, Any], ...]
    said: str

    def __str__(self) -> str:
        return self.said


DROPPED = {"dropIndexes": "items", "index": "old"}
UNDONE = [
    Undone((index("new"),), ({"dropIndexes": "items", "index": "new"},), "index new of d.items was created"),
    Undone((DROPPED,), (index("old"),), "index old of d.items was dropped"),
    Undone((DROPPED, index("old", sparse=True)), (DROPPED, index("old")), "index old of d.items was changed"),
    Undone(
        ({"collMod": "items", "index": {"name": "old", "hidden": True}},),
        ({"collMod": "items", "index": {"name": "old", "hidden": False}},),
        "index old of d.items was changed",
    ),
    Undone(({"create": "new"},), ({"drop": "new"},), "d.new was created"),
    Undone(
        ({"collMod": "items", "validator": {"n": {"$gte": 1}}},),
        ({"collMod": "items", "validator": {"n": {"$gte": 0}}},),
        "option validator of d.items was changed",
    ),
]  # fmt: skip


def _fill_defined(client: writes.AnyClient) -> None:
    # Specify the options that a collMod of the validator would add.
    options = {"validationLevel": "strict", "validationAction": "error"}
    client.d.create_collection("items", validator={"n": {"$gte": 0}}, **options)
    for name in ("items", "plain"):
        client.d[name].insert_many({"_id": number, "n": 1} for number in range(10))
    client.d.command(index("old"))


@pytest.mark.parametrize("case", UNDONE, ids=str)
def test_ddl_without_an_event_prevents_the_commit_until_undone(
    pair: Pair, watchful: Daemon, case: Undone
) -> None:
    _fill_defined(pair.source.client)
    watchful.start()
    assert "warnings" not in watchful.wait_until_committable()
    for command in case.change:
        pair.source.client.d.command(command)
    told = f"{case.said}. A source of version "
    progress = wait_for(lambda: _warned(watchful, told), told)
    assert len(progress["warnings"]) == 1
    warning = progress["warnings"][0]
    assert warning.startswith(told)
    assert "A commit is not possible until this is undone on the source (" in warning
    wait_for(lambda: not watchful.progress()["canCommit"], "canCommit is false")
    assert watchful.post("commit").json()["error"] == "CannotCommit"
    for command in case.undo:
        pair.source.client.d.command(command)
    assert "warnings" not in watchful.wait_until_committable()
    watchful.commit()
    pair.assert_equal()


def _warned(daemon: Daemon, told: str) -> dict[str, Any] | None:
    progress = daemon.progress()
    return progress if told in " ".join(progress.get("warnings", ())) else None


def test_ddl_without_an_event_is_remembered_after_a_restart(pair: Pair, watchful: Daemon) -> None:
    _fill_defined(pair.source.client)
    watchful.start()
    watchful.wait_until_committable()
    pair.source.client.d.command(index("new"))
    wait_for(lambda: _warned(watchful, "index new of"), "a warning")
    watchful.kill()
    watchful.run()
    progress = wait_for(lambda: _warned(watchful, "index new of"), "a warning")
    assert not progress["canCommit"]
    pair.source.client.d.items.drop_index("new")
    watchful.commit()
    pair.assert_equal()


def test_ddl_without_an_event_causes_a_warning_during_the_copy(
    pair: Pair, watchful: Daemon
) -> None:
    _fill_defined(pair.source.client)
    with writes_in(When.COPY, watchful):
        pair.source.client.d.command(index("new"))
        wait_for(lambda: _warned(watchful, "index new of"), "a warning")
        pair.source.client.d.items.drop_index("new")
    watchful.commit()
    pair.assert_equal()


def test_views_of_an_old_source_may_change(pair: Pair, watchful: Daemon) -> None:
    _fill_defined(pair.source.client)
    pair.source.client.d.create_collection("view", viewOn="items")
    watchful.start()
    watchful.wait_until_committable()
    pair.source.client.d.view.drop()
    pair.source.client.d.create_collection("other", viewOn="plain", pipeline=[{"$limit": 1}])
    watchful.commit()
    pair.assert_equal()


def test_preflight_warns_of_an_old_source(pair: Pair, unknowing: Daemon) -> None:
    writes.fill(pair.source.client)
    answer = unknowing.post("preflight", unknowing.start_body()).json()
    assert answer["violations"] == []
    assert "servers before 6.0 do not report every DDL event" in " ".join(answer["warnings"])


@pytest.fixture(scope="module")
def old_source() -> Iterator[ReplicaSet]:
    """Start a replica set with the mongod that the variable SYNCSVC_MONGOD_50 names; skip the test without it."""
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
