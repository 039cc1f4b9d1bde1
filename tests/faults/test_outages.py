"""Causes outages of the destination: the daemon must report each of them, and no command may hang.

When the outage ends, the sync must continue.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
def pair(three: ThreeMembers, replica_sets: Pair) -> Iterator[Pair]:
    with three.client() as client:
        pair = Pair(replica_sets.source, Side(three.uri, client))
        pair.empty()
        yield pair


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
