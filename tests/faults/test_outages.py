"""Causes outages and errors of a cluster: no command may hang, and most tests check that the daemon names the cause.

When the outage ends, the sync must continue; after an unknown error, it continues when it is resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.run_documents import RUNS
from tests.support import writes
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import FailPoints, error
from tests.support.members import ThreeMembers
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for

WRITES = ["insert", "update", "delete", "commitTransaction"]


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeMembers]:
    with ThreeMembers("three") as destination:
        yield destination


@pytest.fixture
def pair(request: pytest.FixtureRequest, three: ThreeMembers, replica_sets: Pair) -> Iterator[Pair]:
    """Return an empty pair whose destination has three members; the mark `from_three` makes this cluster the source."""
    with three.client() as client:
        sides = [replica_sets.source, Side(three.uri, client)]
        pair = Pair(*(reversed(sides) if hasattr(request, "param") else sides))
        pair.empty()
        yield pair


from_three = pytest.mark.parametrize("pair", [True], indirect=True)


@pytest.fixture
def points(three: ThreeMembers) -> Iterator[FailPoints]:
    with FailPoints(three) as points:
        yield points


def warning(daemon: Daemon, *texts: str) -> str | None:
    """Return the daemon's first warning that contains all of these texts; None if there is none.

    Fail if the sync has failed.
    """
    progress = daemon.progress()
    assert progress["state"] != "FAILED", progress
    found = (each for each in progress.get("warnings", ()) if all(text in each for text in texts))
    return next(found, None)


@pytest.mark.full
def test_an_index_is_built_while_a_member_is_down(
    three: ThreeMembers, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    down = (three.members.index(three.primary()) + 1) % 3
    three.kill_member(down)
    try:
        pair.source.client.d.c.create_index("built while one is down")
        daemon.commit()
    finally:
        three.restart_member(down)
    pair.assert_equal()


@prepared(Daemon.warn_soon)
def test_a_missing_majority_is_shown_and_holds_up_no_command(
    three: ThreeMembers, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with three.without_majority():
        writes.single_document_writes(pair.source.client)
        shown = wait_for(lambda: warning(daemon, "cluster1"), "a warning")
        assert "since" in shown and "majority" in shown
        answer = daemon.post("pause")
        assert answer.json()["error"] == "ClusterUnreachable", answer.text
        assert daemon.terminate() == 0
    daemon.run()
    daemon.commit()
    daemon.wait_without_warning()
    pair.assert_equal()


@from_three
@prepared(Daemon.warn_soon)
def test_a_missing_majority_of_the_source_is_shown(
    three: ThreeMembers, pair: Pair, daemon: Daemon
) -> None:
    """By default, a replica set with an arbiter acknowledges writes that its change stream cannot report yet.

    Here, a default write concern of 1 has the same effect. The lag must grow, and a warning must name the cause.
    """
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with default_write_concern(pair, 1), three.without_majority():
        pair.source.client.d.c.insert_one({"_id": "unreplicated"})
        shown = wait_for(lambda: warning(daemon, "change stream of the source"), "a warning")
        assert "since" in shown and "majority" in shown
        wait_for(lambda: (daemon.progress()["lagTimeSeconds"] or 0) > 10, "a lag")
        assert all((daemon.progress()["lagTimeSeconds"] or 0) > 10 for _ in range(20))
    daemon.commit()
    daemon.wait_without_warning()
    pair.assert_equal()


@pytest.mark.full
def test_a_reset_during_an_outage_is_never_run(
    three: ThreeMembers, pair: Pair, daemon: Daemon
) -> None:
    """Without a majority, the reset of a paused sync is refused: a restarted process must not drop the copied data."""
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.pause()
    with three.without_majority():
        answer = daemon.post("reset", {"confirm": "cluster1"})
        assert answer.json()["error"] == "ClusterUnreachable", answer.text
        assert saved_state(pair) == "PAUSED"
        daemon.kill()
    daemon.run()
    daemon.wait_for_state("PAUSED")
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def saved_state(pair: Pair) -> str:
    """Return the state in the run record on the primary of the destination, even if no majority has confirmed it."""
    found = pair.destination.client[METADATA_DATABASE][RUNS].find_one()
    assert found is not None
    return str(found["state"])


@pytest.mark.full
@from_three
@pytest.mark.parametrize("concern", [1, "majority"])
def test_a_reversal_is_refused_while_the_old_source_has_no_majority(
    three: ThreeMembers, pair: Pair, daemon: Daemon, concern: int | str
) -> None:
    """Without a majority, the old source answers no command at all, or answers but does not return its new events.

    The default write concern of the cluster decides.
    """
    writes.fill(pair.source.client)
    daemon.start(reversible=True, enableUserWriteBlocking="sourceAndDestination")
    daemon.commit()
    with default_write_concern(pair, concern), three.without_majority():
        for _ in range(2):
            began = monotonic()
            answer = daemon.post("reverse")
            assert answer.json()["error"] == "ClusterUnreachable", answer.text
            assert monotonic() - began < 20
            assert daemon.progress()["state"] == "COMMITTED"
    daemon.reverse()
    daemon.commit()
    pair.assert_equal()


@contextmanager
def default_write_concern(pair: Pair, concern: int | str) -> Iterator[None]:
    """Set the default write concern of the source during the block, and majority at its end."""
    command = {"setDefaultRWConcern": 1, "writeConcern": {"w": "majority"}}
    pair.source.client.admin.command({**command, "defaultWriteConcern": {"w": concern}})
    try:
        yield
    finally:
        pair.source.client.admin.command({**command, "defaultWriteConcern": {"w": "majority"}})


@pytest.mark.full
@prepared(Daemon.give_up_soon)
def test_an_unknown_error_of_a_server_can_be_resumed(
    points: FailPoints, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with points.armed(error(8), WRITES):
        writes.single_document_writes(pair.source.client)
        failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "UnexpectedServerError"
    assert "POST /api/v1/resume" in failed["errorDescription"]
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@prepared(Daemon.warn_soon)
def test_authorization_errors_are_retried(points: FailPoints, pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with points.armed(error(13), WRITES):
        writes.single_document_writes(pair.source.client)
        shown = wait_for(lambda: warning(daemon, "cluster1", "(code 13)"), "a warning")
        assert "password" in shown
    daemon.commit()
    pair.assert_equal()
