"""The daemon as its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import observed
from tests.support.service_process import ServiceProcess
from tests.support.waiting import wait_for


class Daemon(ServiceProcess):
    """The sync service between two clusters."""

    service = "syncsvc"
    program = staticmethod(observed.run)
    log_file = "syncsvc.log"
    port_option = "--port"

    def __init__(
        self,
        source: str,
        destination: str,
        folder: Path,
        *options: str,
        start_options: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`start_options` are what every start says that says nothing else."""
        self._start_options = start_options
        super().__init__(
            folder,
            *("--cluster0", source, "--cluster1", destination),
            *("--logPath", str(folder / "log"), "--verbosity", "DEBUG", *options),
        )

    def start_body(self, **options: Any) -> dict[str, Any]:
        body = {"source": "cluster0", "destination": "cluster1"}
        return {**body, **self._start_options(), **options}

    def start(self, **options: Any) -> None:
        answer = self.post("start", self.start_body(**options))
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text

    def pause(self) -> None:
        self._command("pause")
        assert self.progress()["state"] == "PAUSED"

    def resume(self) -> None:
        self._command("resume")

    def commit(self) -> None:
        """Commit as soon as it is possible, and wait for the end."""
        self.ask_for_commit()
        self.wait_for_state("COMMITTED")

    def ask_for_commit(self) -> None:
        """As soon as it is possible; where the machine is busy, canCommit may be withdrawn once more before that."""
        self._wait(lambda progress: progress["canCommit"] and self._accepts_commit(), "a commit")

    def _accepts_commit(self) -> bool:
        answer = self.post("commit")
        refused: bool = answer.json().get("error") == "CannotCommit"
        assert answer.ok or refused, answer.text
        return not refused

    def commit_until_killed(self) -> None:
        """Ask for a commit, during which the process is killed as ordered; canCommit may be withdrawn once more."""
        wait_for(self._is_killed_by_a_commit, "a commit")
        self.wait_until_killed()

    def _is_killed_by_a_commit(self) -> bool:
        self.post_unanswered("commit", {})
        return self.exit_status is not None

    def reverse(self) -> None:
        """Reverse the sync, and wait until events are applied the other way."""
        self._command("reverse")
        self.wait_for_state("RUNNING")

    def _command(self, name: str) -> None:
        answer = self.post(name)
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text

    def wait_until_committable(self) -> dict[str, Any]:
        return self._wait(lambda progress: bool(progress["canCommit"]), "canCommit")

    def wait_until_applying(self) -> dict[str, Any]:
        return self._wait(lambda p: p["info"] == "change event application", "applying")

    def commit_or_fail(self) -> dict[str, Any]:
        """Commit as soon as it is possible; the progress at the end, which may be FAILED."""

        def caught_up(progress: dict[str, Any]) -> bool:
            return progress["state"] == "FAILED" or progress["ceaStage"] == "steady state"

        def asked(progress: dict[str, Any]) -> bool:
            ended = progress["state"] == "FAILED"
            return ended or (progress["canCommit"] and self._accepts_commit())

        # A wait of its own: many definitions take long on a sharded cluster.
        wait_for(lambda: caught_up(self.progress()), "steady state or FAILED")
        wait_for(lambda: asked(self.progress()), "canCommit or FAILED")
        ends = ("COMMITTED", "FAILED")
        return wait_for(lambda: _in_state(self.progress(), ends), " or ".join(ends))

    def wait_for_state(self, state: str) -> dict[str, Any]:
        return self._wait(lambda progress: progress["state"] == state, state)

    def _wait(self, holds: Any, what: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            progress = self.progress()
            if what != "FAILED":
                assert progress["state"] != "FAILED", progress
            return progress if holds(progress) else None

        return wait_for(look, what)

    def classic_updates(self) -> None:
        """From the next start on, as with a source that does not offer the oplog's own diffs."""
        (self.folder / "classic-updates").touch()

    def force_classic_updates(self) -> None:
        """Start again, as with a source that does not offer the oplog's own diffs."""
        self.classic_updates()
        self.kill()
        self.run()

    def believe_the_source_is_old(self) -> None:
        """From the next start on, as with a source before 6.0: no definition events, no UUIDs."""
        (self.folder / "old-source").touch()

    def save_every_page(self) -> None:
        """From the next start on, the copy saves its resume point after every page."""
        (self.folder / "save-every-page").touch()

    def small_partitions(self) -> None:
        """From the next start on, a sharded source is copied by ranges of 2 KB."""
        (self.folder / "small-partitions").touch()

    def watch_closely(self) -> None:
        """From the next start on, the source's oplog is looked at several times a second."""
        (self.folder / "watch-closely").touch()

    def report_often(self) -> None:
        """From the next start on, the lines of every half minute come several times a second."""
        (self.folder / "report-often").touch()

    def namespaces(self, **parameters: str | int) -> dict[str, Any]:
        """How far each collection is, by name, with `next` beside them."""
        answer = self.get("namespaces", **parameters)
        self._assert_described(answer)
        body: dict[str, Any] = answer.json()
        return body

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Within the block, the process believes in 100 MB of memory here, and no disk on the destination."""
        (self.folder / "no-room").touch()
        try:
            yield
        finally:
            (self.folder / "no-room").unlink()


def _in_state(progress: dict[str, Any], states: tuple[str, ...]) -> dict[str, Any] | None:
    return progress if progress["state"] in states else None
