"""Tests the saved definitions of views, by which a sync recognizes the views that it has created.

Also tests a view that prevents the creation of a time-series collection.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from tests.integration.test_cutover import EXISTING
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import wait_for

MODES = [{}, {"preExistingDestinationData": True, "enableUserWriteBlocking": "none"}]


def change(client: writes.AnyClient, number: int) -> None:
    """Give the view d.changed another definition."""
    client.d.command("collMod", "changed", viewOn="c", pipeline=[{"$match": {"n": number}}])


def fill(client: writes.AnyClient) -> None:
    writes.fill(client, 20)
    for name in ("changed", "dropped", "kept"):
        client.d.create_collection(name, viewOn="c", pipeline=[{"$match": {"n": 0}}])
    client.gone.create_collection("view", viewOn="c")


def saved(pair: Pair) -> dict[str, int]:
    """Return the number of saved definitions of each view."""
    rows = pair.destination.client[METADATA_DATABASE].views.find()
    return {each["_id"]: len(each["definitions"]) for each in rows}


def wait_for_last(pair: Pair) -> None:
    """Write a document to the source, and wait until the sync has applied it and all earlier changes."""
    pair.source.client.d.c.insert_one({"_id": "last"})
    there = pair.destination.client.d.c
    wait_for(lambda: there.find_one({"_id": "last"}), "the last event")


@pytest.mark.parametrize("mode", MODES, ids=["empty destination", "other data"])
def test_only_the_current_definition_of_each_view_is_saved(
    pair: Pair, daemon: Daemon, mode: dict[str, Any]
) -> None:
    source = pair.source.client
    fill(source)
    daemon.start(**mode)
    daemon.wait_until_committable()
    assert saved(pair) == {"d.changed": 1, "d.dropped": 1, "d.kept": 1, "gone.view": 1}
    for number in range(1, 6):
        change(source, number)
    source.d.dropped.drop()
    source.drop_database("gone")
    wait_for_last(pair)
    assert saved(pair) == {"d.changed": 1, "d.kept": 1}
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize("replayed", [False, True], ids=["at once", "after the replay"])
@pytest.mark.parametrize("mode", MODES, ids=["empty destination", "other data"])
@pytest.mark.parametrize("point", [Point.VIEW_DROPPED, Point.VIEWS_SAVED])
def test_a_reset_recognizes_the_views_after_a_kill(
    pair: Pair, daemon: Daemon, point: Point, mode: dict[str, Any], replayed: bool
) -> None:
    """Change a view, kill the daemon between the steps of this change, and reset the sync: no view may be left."""
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    daemon.start(**mode)
    daemon.wait_until_committable()
    daemon.kill_at(point)
    daemon.kill()
    daemon.run()
    change(source, 1)
    daemon.wait_until_killed()
    daemon.run()
    if replayed:
        wait_for_last(pair)
        assert saved(pair)["d.changed"] == 1
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    assert {*destination.d.list_collection_names()} <= {"system.views"}
    assert {*destination.gone.list_collection_names()} <= {"system.views"}


@pytest.mark.parametrize("options", [{}, EXISTING], ids=["alone", "with existing data"])
def test_an_outdated_view_does_not_prevent_a_time_series(
    pair: Pair, daemon: Daemon, options: dict[str, Any]
) -> None:
    """During a pause, create a time series, and replace it by another one of the same name.

    When the sync applies the first creation, it creates the second time series, which has another collation. The
    destination's view conflicts with it: the view still refers to this name, because its change is a later event.
    """
    client = pair.source.client
    client.d.c.insert_one({"_id": 1})
    client.d.command({"create": "view", "viewOn": "s", "pipeline": []})
    daemon.start(**options)
    daemon.wait_until_committable()
    daemon.pause()
    client.d.create_collection("s", timeseries={"timeField": "at"})
    client.d.s.drop()
    client.d.command({"collMod": "view", "viewOn": "c", "pipeline": []})
    client.d.create_collection("s", timeseries={"timeField": "at"}, collation={"locale": "fr"})
    client.d.s.insert_one({"at": datetime(2030, 1, 1, tzinfo=UTC)})
    daemon.resume()
    daemon.commit()
    pair.assert_equal()
