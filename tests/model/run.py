"""Runs a plan of the model test between two clusters, with the real daemon."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, cycle
from pathlib import Path
from time import monotonic
from typing import Any

import requests

from syncsvc.engine.run.points import Point
from syncsvc.sandbox.equality import compare_clusters
from syncsvc.sandbox.replica_set import Client
from tests.model import sharding, values
from tests.model.operation import Operation
from tests.model.plan import Delay, Kill, Passing, Plan, Stage
from tests.model.selection import SELECTED, selects
from tests.model.writers import Writers, transaction
from tests.support.daemon import Daemon
from tests.support.fleet import Fleet
from tests.support.pair import Pair, Side, assert_none
from tests.support.shapes import Kind
from tests.support.waiting import wait_for

# The interval at which the daemons are checked while the writers run, in seconds.
_POLL_INTERVAL = 0.05
# The points at which the coordinator is always killed. Other instances pass none of them, apart from COPY_SAVED.
_DONE_ONCE = {
    *(Point.STARTED, Point.COLLECTION_CREATED, Point.LISTED, Point.COPY_SAVED),
    *(Point.COLLECTION_COPIED, Point.STEP_DONE),
}

Condition = Callable[[Daemon, dict[str, Any]], bool]


class Run:
    """One run of a plan between two clusters, which must be empty at its beginning."""

    def __init__(self, plan: Plan, pair: Pair, folder: Path) -> None:
        self.writers = Writers(pair.source.client)
        load = ("--loadLevel", str(plan.load_level))
        self.daemons = (
            Fleet(pair, folder, *load).daemons
            if plan.several_instances
            else [pair.daemon(folder, *load)]
        )
        ask = {"listDatabases": 1, "nameOnly": True}
        self.began = pair.source.client.admin.command(ask)["operationTime"]
        self.kills = 0
        self._plan = plan
        self._shape = plan.kind.of((*values.DATABASES, values.APART), SELECTED)
        self._pair = pair
        self._victims = cycle(self.daemons)
        self._orders: deque[tuple[Kill, Daemon]] = deque()
        self._due: float | None = None
        self._pause = threading.Event()

    def execute(self) -> None:
        """Run the plan. Raises AssertionError if the sync fails, or if the clusters differ at the end."""
        self._configure()
        if self._plan.sharded:
            sharding.shard(self._pair)
        try:
            with self.writers.writing(self._plan.before.streams):
                for each in self.daemons:
                    each.run()
            with self._open(self._plan.open_during_commit):
                self._sync()
        finally:
            for each in self.daemons:
                each.close()
        self._assert_equal()

    def differences(self) -> list[str]:
        """Return the differences between the clusters as sentences, except those with a known cause.

        The known causes are the namespace filter, the shard keys of renamed collections, and time-series collections
        that the source has created incompletely.
        """
        source, destination = self._pair.source.client, self._pair.destination.client
        incomplete = _incomplete_time_series(source)
        if self._plan.kind is Kind.PLAIN:
            result = compare_clusters(source, destination, self._pair.shard_keys)
            assert result.namespaces > 0
            found = list(result.differences)
        else:
            found = list(chain.from_iterable(self._shape.differences(self._pair).values()))
        found = [each for each in found if each not in incomplete]
        if self._plan.filtered:
            return [each for each in found if selects(_namespace(each)) or not _is_missing(each)]
        if self._pair.shard_keys:
            return [each for each in found if not _is_of_sharding(each)]
        return found

    def _assert_equal(self) -> None:
        assert_none(self.differences())
        if self._plan.filtered:
            assert [each for each in _namespaces(self._pair.destination) if not selects(each)] == []

    def _configure(self) -> None:
        for each in self.daemons:
            if self._plan.classic_updates:
                each.classic_updates()
            if self._plan.save_every_page:
                each.save_every_page()
            if self._plan.small_partitions:
                each.small_partitions(20_000)
            if self._plan.old_source:
                each.believe_the_source_is_old()
                each.watch_closely()

    @property
    def _coordinator(self) -> Daemon:
        return self.daemons[0]

    def _open(self, operation: Operation | None) -> AbstractContextManager[object]:
        if operation is None:
            return contextlib.nullcontext()
        return transaction(self._pair.source.client, operation)

    def _sync(self) -> None:
        plan = self._plan
        with self._open(plan.open_during_copy), self._held(plan.copying.hold):
            with self._held(plan.initializing.hold):
                self._run_stage(plan.initializing)
            self._run_stage(plan.copying)
        self._wait(_is_applying, "applying")
        for stage in plan.applying:
            self._run_stage(stage)
        self._order(plan.commit_kill)
        self._wait(self._is_committed, "COMMITTED")

    def _run_stage(self, stage: Stage) -> None:
        self._order(stage.kill)
        if stage.hold is not None:
            hold = stage.hold
            self._wait(lambda d, p: self._has_reached(hold) or _is_applying(d, p), f"{hold}")
        with self.writers.writing(stage.streams) as running:
            while not all(each.done() for each in running):
                self._look_after_daemons()
                self._pause.wait(_POLL_INTERVAL)

    @contextlib.contextmanager
    def _held(self, hold: Passing | None) -> Iterator[None]:
        if hold is None:
            yield
            return
        with self._coordinator.held_at(hold.point, hold.subject, hold.number):
            yield

    def _has_reached(self, hold: Passing) -> bool:
        return self._coordinator.has_reached(hold.point, hold.subject, hold.number)

    def _order(self, kill: Kill | None) -> None:
        """Schedule a kill of a daemon, after the kills that are already scheduled; a no-op if `kill` is None."""
        if kill is not None:
            victim = self._coordinator if _is_done_once(kill) else next(self._victims)
            self._orders.append((kill, victim))
            if len(self._orders) == 1:
                self._prepare_kill()

    def _prepare_kill(self) -> None:
        kill, victim = self._orders[0]
        if isinstance(kill, Delay):
            self._due = monotonic() + kill.seconds
        else:
            victim.kill_at(kill.point, kill.subject, kill.number)

    def _wait(self, holds: Condition, what: str) -> None:
        """Wait until `holds` is true for every daemon and its progress.

        Meanwhile, run due kills, restart killed daemons, and start the sync on idle ones. `what` describes the
        condition in the error after a timeout. Raises AssertionError if the sync has failed.
        """

        def all_hold() -> bool:
            found = self._look_after_daemons()
            return all([holds(*each) for each in zip(self.daemons, found, strict=True)])

        wait_for(all_hold, what)

    def _look_after_daemons(self) -> list[dict[str, Any]]:
        """Run the next kill if the time of a Delay has come, restart killed daemons, and return the progress of all."""
        if self._due is not None and monotonic() > self._due:
            self._kill()
        return [self._look_after(each) for each in self.daemons]

    def _look_after(self, daemon: Daemon) -> dict[str, Any]:
        """Restart the daemon if it was killed, start the sync if the daemon is IDLE, and return the progress.

        Return an empty dict if the daemon does not answer. Raises AssertionError if the sync has failed.
        """
        if daemon.exit_status is not None:
            self._start_again(daemon)
        with contextlib.suppress(requests.RequestException):
            progress = daemon.progress()
            if progress["state"] == "FAILED":
                raise AssertionError(f"{progress['error']}: {progress['errorDescription']}")
            if progress["state"] == "IDLE":
                self._start(daemon)
            return progress
        return {}

    def _start(self, daemon: Daemon) -> None:
        """Start the sync. A no-op if a writer has just dropped a collection with a document filter."""
        self._shape.prepare(self._pair)
        options = {**self._plan.start_options, **self._shape.start_options}
        answer = daemon.post("start", daemon.start_body(**options))
        assert answer.ok or answer.json()["error"] == "InvalidDocumentFilter", answer.text

    def _kill(self) -> None:
        kill, victim = self._orders[0]
        self._due = None
        if isinstance(kill, Delay) and kill.gentle:
            # The daemon ends when it is no longer held.
            victim.ask_to_end()
        else:
            victim.kill()

    def _start_again(self, daemon: Daemon) -> None:
        assert daemon.exit_status in (0, -signal.SIGKILL), daemon.exit_status
        self.kills += 1
        daemon.forget_kills()
        self._orders.popleft()
        if self._orders:
            self._prepare_kill()
        daemon.run()

    def _is_committed(self, daemon: Daemon, progress: dict[str, Any]) -> bool:
        if progress.get("state") == "RUNNING" and progress["canCommit"]:
            # The command is sent again if the daemon was killed before the reply.
            daemon.post_unanswered("commit", {})
        return progress.get("state") == "COMMITTED"


def _namespaces(side: Side) -> list[str]:
    return [
        f"{database}.{collection}"
        for database in values.DATABASES
        for collection in side.client[database].list_collection_names()
        if not collection.startswith("system.")
    ]


def _incomplete_time_series(source: Client) -> set[str]:
    """Return the possible differences, as sentences, for each time-series collection of the source without buckets.

    The sync does not create such a collection on the destination. A server creates the buckets of a time-series
    collection first, and then its view. If the collection is dropped between the two steps, only the view remains: it
    is empty, and the server refuses all writes to it.
    """
    found = set()
    for database in source.list_database_names():
        kinds = {each["name"]: each["type"] for each in source[database].list_collections()}
        for name, kind in kinds.items():
            if kind == "timeseries" and f"system.buckets.{name}" not in kinds:
                found.add(f"{database}.{name}: timeseries missing on destination")
                found.add(f"{database}.{name}: {database}.{name} is missing")
    return found


def _namespace(difference: str) -> str:
    return difference.partition(": ")[0]


def _is_missing(difference: str) -> bool:
    """Return whether the difference says that a collection or view is missing on the destination."""
    return difference.partition(": ")[2].partition(" ")[2] == "missing on destination"


def _is_of_sharding(difference: str) -> bool:
    """Return whether the difference is about a shard key, or about whether a collection is sharded.

    The test ignores such differences, because it does not know which shard key a renamed collection should have.
    """
    return difference.partition(": ")[2].startswith(("sharded ", "shard key "))


def _is_done_once(kill: Kill) -> bool:
    """Return whether the kill happens at a point in `_DONE_ONCE`, where the coordinator must be killed."""
    return isinstance(kill, Passing) and kill.point in _DONE_ONCE


def _is_applying(daemon: Daemon, progress: dict[str, Any]) -> bool:
    return progress.get("info") == "change event application"
