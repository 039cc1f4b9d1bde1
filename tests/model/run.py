"""One run of a plan between two clusters, with the real daemon."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic
from typing import Any

import requests

from syncsvc.sandbox.equality import compare_clusters
from tests.model import sharding, values
from tests.model.operation import Operation
from tests.model.plan import Delay, Kill, Passing, Plan, Stage
from tests.model.selection import selects
from tests.model.writers import Writers, transaction
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for

_GLANCE = 0.05


class Run:
    """Carries a plan out between clusters that are empty before."""

    def __init__(self, plan: Plan, pair: Pair, folder: Path) -> None:
        self.writers = Writers(pair.source.client)
        load = ("--loadLevel", str(plan.load_level))
        self.daemon = pair.daemon(folder, *load)
        ask = {"listDatabases": 1, "nameOnly": True}
        self.began = pair.source.client.admin.command(ask)["operationTime"]
        self.kills = 0
        self._plan = plan
        self._pair = pair
        self._orders: deque[Kill] = deque()
        self._due: float | None = None
        self._pause = threading.Event()

    def carry_out(self) -> None:
        """Raises AssertionError when the sync fails, or its end is not equal."""
        self._configure()
        if self._plan.sharded:
            sharding.shard(self._pair)
        with self.writers.writing(self._plan.before.streams):
            self.daemon.run()
        try:
            with self._open(self._plan.open_during_commit):
                self._sync()
        finally:
            self.daemon.close()
        self._assert_equal()

    def differences(self) -> list[str]:
        """What the judge finds, but for what the filter leaves out."""
        source, destination = self._pair.source.client, self._pair.destination.client
        found = compare_clusters(source, destination, self._pair.shard_keys).differences
        if self._plan.filtered:
            return [each for each in found if selects(_namespace(each)) or not _is_missing(each)]
        if self._pair.shard_keys:
            return [each for each in found if not _is_of_sharding(each)]
        return list(found)

    def _assert_equal(self) -> None:
        if not self._plan.filtered and not self._pair.shard_keys:
            self._pair.assert_equal()
        assert self.differences() == []
        if self._plan.filtered:
            assert [each for each in _namespaces(self._pair.destination) if not selects(each)] == []

    def _configure(self) -> None:
        if self._plan.classic_updates:
            self.daemon.classic_updates()
        if self._plan.save_every_page:
            self.daemon.save_every_page()

    def _open(self, operation: Operation | None) -> AbstractContextManager[object]:
        if operation is None:
            return contextlib.nullcontext()
        return transaction(self._pair.source.client, operation)

    def _sync(self) -> None:
        plan = self._plan
        with self._open(plan.open_during_copy), self._held(plan.copying.hold):
            with self._held(plan.initializing.hold):
                self._carry_out(plan.initializing)
            self._carry_out(plan.copying)
        self._wait(_is_applying, "applying")
        for stage in plan.applying:
            self._carry_out(stage)
        self._order(plan.commit_kill)
        self._wait(self._is_committed, "COMMITTED")

    def _carry_out(self, stage: Stage) -> None:
        self._order(stage.kill)
        if stage.hold is not None:
            hold = stage.hold
            self._wait(lambda p: self._has_reached(hold) or _is_applying(p), f"{hold}")
        with self.writers.writing(stage.streams) as running:
            while not all(each.done() for each in running):
                self._look_after_daemon()
                self._pause.wait(_GLANCE)

    @contextlib.contextmanager
    def _held(self, hold: Passing | None) -> Iterator[None]:
        if hold is None:
            yield
            return
        with self.daemon.held_at(hold.point, hold.subject, hold.number):
            yield

    def _has_reached(self, hold: Passing) -> bool:
        return self.daemon.has_reached(hold.point, hold.subject, hold.number)

    def _order(self, kill: Kill | None) -> None:
        """Have the daemon killed, after the kills that were ordered before."""
        if kill is not None:
            self._orders.append(kill)
            if len(self._orders) == 1:
                self._prepare_kill()

    def _prepare_kill(self) -> None:
        kill = self._orders[0]
        if isinstance(kill, Delay):
            self._due = monotonic() + kill.seconds
        else:
            self.daemon.kill_at(kill.point, kill.subject, kill.number)

    def _wait(self, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
        wait_for(lambda: holds(self._look_after_daemon()), what)

    def _look_after_daemon(self) -> dict[str, Any]:
        """Kill it when that is due, start it again when it was killed; its progress, empty when it does not answer."""
        if self._due is not None and monotonic() > self._due:
            self._kill()
        if self.daemon.exit_status is not None:
            self._start_again()
        with contextlib.suppress(requests.RequestException):
            progress = self.daemon.progress()
            if progress["state"] == "FAILED":
                raise AssertionError(f"{progress['error']}: {progress['errorDescription']}")
            if progress["state"] == "IDLE":
                self.daemon.start(**self._plan.start_options)
            return progress
        return {}

    def _kill(self) -> None:
        kill = self._orders[0]
        self._due = None
        if isinstance(kill, Delay) and kill.gentle:
            # It ends when it is no longer held.
            self.daemon.ask_to_end()
        else:
            self.daemon.kill()

    def _start_again(self) -> None:
        assert self.daemon.exit_status in (0, -signal.SIGKILL), self.daemon.exit_status
        self.kills += 1
        self.daemon.forget_kills()
        self._orders.popleft()
        if self._orders:
            self._prepare_kill()
        self.daemon.run()

    def _is_committed(self, progress: dict[str, Any]) -> bool:
        if progress.get("state") == "RUNNING" and progress["canCommit"]:
            # Sent again when a kill was faster than its answer.
            self.daemon.post_unanswered("commit", {})
        return progress.get("state") == "COMMITTED"


def _namespaces(side: Side) -> list[str]:
    return [
        f"{database}.{collection}"
        for database in values.DATABASES
        for collection in side.client[database].list_collection_names()
        if not collection.startswith("system.")
    ]


def _namespace(difference: str) -> str:
    return difference.partition(": ")[0]


def _is_missing(difference: str) -> bool:
    """Whether it says that a whole collection or view is not on the destination."""
    return difference.partition(": ")[2].partition(" ")[2] == "missing on destination"


def _is_of_sharding(difference: str) -> bool:
    """Whether it is about what is sharded: of a collection that was renamed, its name says nothing of that."""
    return difference.partition(": ")[2].startswith(("sharded ", "shard key "))


def _is_applying(progress: dict[str, Any]) -> bool:
    return progress.get("info") == "change event application"
