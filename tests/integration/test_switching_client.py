"""Tests that no acknowledged write is lost during a migration and its reversals.

An application writes all the time, and switches clusters at each cut-over.
"""

from __future__ import annotations

from syncsvc.engine.run.points import Point
from tests.support.application import Application
from tests.support.blocks import is_blocked
from tests.support.daemon import Daemon
from tests.support.pair import Pair


class Migration:
    """A migration between two clusters, which is reversed repeatedly, while an application keeps writing."""

    def __init__(self, pair: Pair, daemon: Daemon, application: Application) -> None:
        self._pair = pair
        self._daemon = daemon
        self._application = application
        self._source, self._destination = pair.source, pair.destination
        self._commits = 0

    def start(self) -> None:
        self._application.wait_for_writes()
        self._daemon.start(reversible=True, enableUserWriteBlocking="sourceAndDestination")
        self._application.wait_for_writes()

    def commit(self) -> None:
        """Commit the sync. Fail unless the clusters are equal before the application writes to the destination."""
        self._commits += 1
        self._daemon.wait_until_committable()
        self._assert_blocked(source=False, destination=True)
        blocked = (Point.STEP_DONE, "source blocked", self._commits)
        unblocked = (Point.STEP_DONE, "destination unblocked", self._commits)
        with self._daemon.held_at(*unblocked):
            with self._daemon.held_at(*blocked):
                self._daemon.ask_for_commit()
                self._daemon.wait_until_reached(*blocked)
                self._assert_blocked(source=True, destination=True)
                self._application.wait_until_refused()
            self._daemon.wait_until_reached(*unblocked)
            self._assert_blocked(source=True, destination=False)
            assert self._daemon.progress()["canWrite"] is False
            self._application.suspend()
        self._daemon.wait_for_state("COMMITTED")
        assert self._daemon.progress()["canWrite"] is True
        self._assert_blocked(source=True, destination=False)
        self._pair.assert_equal()
        self.assert_nothing_is_lost()
        self._application.resume()
        self._application.wait_for_writes()

    def reverse(self) -> None:
        """Reverse the sync while the application keeps writing."""
        self._daemon.reverse()
        self._source, self._destination = self._destination, self._source
        self._assert_blocked(source=False, destination=True)
        assert self._daemon.progress()["canWrite"] is False
        self._application.wait_for_writes()

    def assert_nothing_is_lost(self) -> None:
        """Fail unless the destination has exactly the documents of all acknowledged writes.

        No client may write during this comparison.
        """
        found = self._destination.client.app.data.find()
        assert {each["_id"]: each for each in found} == self._application.documents

    def _assert_blocked(self, *, source: bool, destination: bool) -> None:
        assert (is_blocked(self._source), is_blocked(self._destination)) == (source, destination)


def test_no_acknowledged_write_is_lost(pair: Pair, daemon: Daemon) -> None:
    application = Application(pair, daemon)
    migration = Migration(pair, daemon, application)
    with application.writing():
        migration.start()
        migration.commit()
        migration.reverse()
        migration.commit()
        migration.reverse()
        migration.commit()
    migration.assert_nothing_is_lost()
