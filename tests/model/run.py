"""One run of a plan between two clusters, with the real daemon."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import requests

from tests.conftest import Pair
from tests.model.plan import Delay, Kill, Passing, Plan, Stage
from tests.model.writers import Writers
from tests.support.daemon import Daemon
from tests.support.waiting import wait_for

_GLANCE = 0.05


class Run:
    """Carries a plan out between clusters that are empty before."""

    def __init__(self, plan: Plan, pair: Pair, folder: Path) -> None:
        self.writers = Writers(pair.source.client)
        self.daemon = Daemon(pair.source.uri, pair.destination.uri, folder)
        self.began = pair.source.client.admin.command("hello")["operationTime"]
        self.kills = 0
        self._plan = plan
        self._pair = pair
        self._orders: deque[Kill] = deque()
        self._due: float | None = None
        self._pause = threading.Event()

    def carry_out(self) -> None:
        """Raises AssertionError when the sync fails, or its end is not equal."""
        self._configure()
        with self.writers.writing(self._plan.before.streams):
            self.daemon.run()
        try:
            self._sync()
        finally:
            self.daemon.close()
        self._pair.assert_equal()

    def _configure(self) -> None:
        if self._plan.classic_updates:
            self.daemon.classic_updates()
        if self._plan.save_every_page:
            self.daemon.save_every_page()

    def _sync(self) -> None:
        plan = self._plan
        with self._held(plan.copying.hold):
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
        def look() -> bool:
            progress = self._look_after_daemon()
            return progress is not None and holds(progress)

        wait_for(look, what, 60)

    def _look_after_daemon(self) -> dict[str, Any] | None:
        """Kill it when that is due, start it again when it was killed; its progress, if it answers."""
        if self._due is not None and monotonic() > self._due:
            self.daemon.kill()
        if self.daemon.exit_status is not None:
            self._start_again()
        with contextlib.suppress(requests.ConnectionError):
            progress = self.daemon.progress()
            if progress["state"] == "FAILED":
                raise AssertionError(f"{progress['error']}: {progress['errorDescription']}")
            if progress["state"] == "IDLE":
                self.daemon.start(**self._plan.start_options)
            return progress
        return None

    def _start_again(self) -> None:
        assert self.daemon.exit_status == -signal.SIGKILL, self.daemon.exit_status
        self.kills += 1
        self._due = None
        self.daemon.forget_kills()
        self._orders.popleft()
        if self._orders:
            self._prepare_kill()
        self.daemon.run()

    def _is_committed(self, progress: dict[str, Any]) -> bool:
        if progress["state"] == "RUNNING" and progress["canCommit"]:
            # Sent again when a kill was faster than its answer.
            self.daemon.post_unanswered("commit", {})
        return bool(progress["state"] == "COMMITTED")


def _is_applying(progress: dict[str, Any]) -> bool:
    return bool(progress["info"] == "change event application")
