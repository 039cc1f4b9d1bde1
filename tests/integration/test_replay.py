"""Changes between the start of the change stream and the listing: the listing knows more than the events say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bson.datetime_ms import DatetimeMS

from syncsvc.engine.observe import Point
from tests.conftest import Pair
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.phases import When, writes_in


def unique_index_that_became_plain(client: writes.AnyClient) -> None:
    client.d.c.create_index("n", name="x", unique=True)
    client.d.c.drop_index("x")
    client.d.c.create_index("n", name="y")


def index_that_later_documents_refuse(client: writes.AnyClient) -> None:
    client.d.c.create_index([("p", 1), ("q", 1)])
    client.d.c.drop_index("p_1_q_1")
    client.d.c.insert_one({"_id": "parallel", "p": [1, 2], "q": [1, 2]})


def views_that_changed_places(client: writes.AnyClient) -> None:
    client.d.command({"create": "a", "viewOn": "b", "pipeline": []})
    client.d.drop_collection("a")
    client.d.command({"create": "b", "viewOn": "a", "pipeline": []})


def collection_that_became_a_view_and_back(client: writes.AnyClient) -> None:
    client.d.x.insert_one({"_id": 1})
    client.d.drop_collection("x")
    client.d.command({"create": "x", "viewOn": "c", "pipeline": []})
    client.d.drop_collection("x")
    client.d.x.insert_one({"_id": 2})


def collection_made_again(client: writes.AnyClient) -> None:
    writes.drop_and_create_again(client)
    client.d.drop_collection("c")
    client.d.c.insert_one({"_id": "third"})


def changes_of_what_is_not_synced(client: writes.AnyClient) -> None:
    other = client["mongosync_reserved_for_verification"]
    other.c.insert_one({"_id": 1})
    other.command({"collMod": "c", "validator": {"n": 1}})
    client.drop_database(other.name)


def a_date_that_few_languages_know(client: writes.AnyClient) -> None:
    late = DatetimeMS(2**60)
    client.d.command(
        {"create": "late", "viewOn": "c", "pipeline": [{"$match": {"t": {"$lt": late}}}]}
    )


@pytest.mark.parametrize(
    "change",
    [
        unique_index_that_became_plain,
        index_that_later_documents_refuse,
        views_that_changed_places,
        collection_that_became_a_view_and_back,
        collection_made_again,
        changes_of_what_is_not_synced,
        a_date_that_few_languages_know,
    ],
    ids=lambda change: change.__name__,
)
def test_events_older_than_the_listing(
    pair: Pair, daemon: Daemon, change: Callable[[writes.AnyClient], None]
) -> None:
    writes.fill(pair.source.client)
    with daemon.held_at(Point.STARTED):
        daemon.start()
        daemon.wait_until_reached(Point.STARTED)
        change(pair.source.client)
    daemon.commit()
    pair.assert_equal()


def test_keys_that_a_collation_makes_one(pair: Pair, daemon: Daemon) -> None:
    """The document is read again by a key that finds another document, with an equal key."""
    daemon.force_classic_updates()
    collation = {"locale": "en", "strength": 2}
    c = pair.source.client.d.create_collection("c", collation=collation)
    c.insert_one({"_id": "A", "sub": {"n": 1}, "pad": "p" * 2000})
    with writes_in(When.COPY, daemon):
        c.update_one({"_id": "A"}, {"$set": {"sub.n": 2}})
        c.delete_one({"_id": "A"})
        c.insert_one({"_id": "a", "sub": {"n": 3}})
    daemon.commit()
    pair.assert_equal()


def test_an_index_build_in_progress_is_not_listed(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    client.d.c.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
    hang = {"configureFailPoint": "hangAfterSettingUpIndexBuild"}
    client.admin.command({**hang, "mode": "alwaysOn"})
    with writes.started(lambda: client.d.c.create_index("n", unique=True)) as build:
        try:
            writes.wait_for_index_build(client)
            daemon.start()
            daemon.wait_until_committable()
        finally:
            client.admin.command({**hang, "mode": "off"})
        assert build.exception() is not None
    daemon.commit()
    pair.assert_equal()


def test_metadata_of_another_instance_is_not_taken_for_ours(
    pair: Pair, daemon: Daemon, tmp_path: Path
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.commit()
    pair.destination.client.drop_database("d")
    second = Daemon(pair.source.uri, pair.destination.uri, tmp_path / "second", "--id", "second")
    second.folder.mkdir()
    try:
        second.run()
        assert_refused(second.post("start", GOOD), 409, "MetadataLeftOver", ("coordinator",))
        pair.destination.client.drop_database("mongosync_reserved_for_internal_use")
        second.start()
        second.commit()
        pair.assert_equal()
    finally:
        second.close()


def test_what_users_drop_before_the_end_of_the_cut_over_is_no_failure(
    pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", unique=True)
    pair.source.client.d.other.create_index("m", unique=True, sparse=True)
    step = (Point.STEP_DONE, "destination writable")
    with daemon.held_at(*step):
        daemon.start()
        daemon.wait_until_committable()
        daemon.post("commit")
        daemon.wait_until_reached(*step)
        pair.destination.client.d.drop_collection("other")
        pair.destination.client.d.c.drop_index("n_1")
    daemon.wait_for_state("COMMITTED")


def test_a_process_that_was_held_up_does_not_write_over_its_successor(
    pair: Pair, daemon: Daemon, tmp_path: Path
) -> None:
    pair.source.client.d.c.insert_many({"_id": n, "pad": "p" * 5000} for n in range(4000))
    second = Daemon(pair.source.uri, pair.destination.uri, tmp_path / "second")
    second.folder.mkdir()
    try:
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start()
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            second.run()
            pair.source.client.d.c.delete_many({"_id": {"$gte": 10}})
            second.commit()
        assert daemon.wait_for_state("FAILED")["error"] == "Superseded"
        pair.assert_equal()
    finally:
        second.close()
