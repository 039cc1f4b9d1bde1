"""The daemon as its own process, driven through its HTTP API as a user would."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from syncsvc.engine.observe import Point
from tests.support.observed import slug
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Daemon:
    """One daemon process and its successors after a restart, with one set of options."""

    def __init__(self, source: str, destination: str, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._options = (
            *("--cluster0", source, "--cluster1", destination, "--port", str(self.port)),
            *("--logPath", str(folder / "log"), "--verbosity", "DEBUG", *options),
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log" / "syncsvc.log").read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while the process runs."""
        assert self._process is not None
        return self._process.poll()

    def run(self) -> None:
        """Start the process and wait until it answers."""
        command = [sys.executable, "-m", "tests.support.observed", str(self.folder), *self._options]
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        wait_for(self._answers, "the daemon answers")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the daemon ended: {(self.folder / 'output').read_text()}")
        with contextlib.suppress(requests.ConnectionError):
            return bool(requests.get(self.url("progress"), timeout=10).ok)
        return False

    def url(self, command: str) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1/{command}"

    def post(self, command: str, body: Any = None, **options: Any) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
        return requests.post(self.url(command), data=data, timeout=60, **options)

    def post_unanswered(self, command: str, body: Any) -> None:
        """Send a command to a daemon that may be killed before it answers."""
        with contextlib.suppress(requests.RequestException):
            self.post(command, body)

    def progress(self) -> dict[str, Any]:
        answer = requests.get(self.url("progress"), timeout=10).json()
        assert answer["success"] is True
        progress: dict[str, Any] = answer["progress"]
        return progress

    def start(self, **options: Any) -> None:
        body = {"source": "cluster0", "destination": "cluster1", **options}
        answer = self.post("start", body)
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text

    def commit(self) -> None:
        """Commit as soon as it is possible, and wait for the end."""
        self.wait_until_committable()
        answer = self.post("commit")
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text
        self.wait_for_state("COMMITTED")

    def wait_until_committable(self) -> dict[str, Any]:
        return self._wait(lambda progress: bool(progress["canCommit"]), "canCommit")

    def wait_until_applying(self) -> dict[str, Any]:
        return self._wait(lambda p: p["info"] == "change event application", "applying")

    def commit_or_fail(self) -> dict[str, Any]:
        """Commit as soon as it is possible; the progress at the end, which may be FAILED."""

        def asked(progress: dict[str, Any]) -> bool:
            ended = progress["state"] == "FAILED"
            return ended or (progress["canCommit"] and self.post("commit").ok)

        wait_for(lambda: asked(self.progress()), "canCommit or FAILED", 150)
        ends = ("COMMITTED", "FAILED")
        return wait_for(lambda: _in_state(self.progress(), ends), " or ".join(ends), 150)

    def wait_for_state(self, state: str) -> dict[str, Any]:
        return self._wait(lambda progress: progress["state"] == state, state)

    def _wait(self, holds: Any, what: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            progress = self.progress()
            if what != "FAILED":
                assert progress["state"] != "FAILED", progress
            return progress if holds(progress) else None

        return wait_for(look, what, 90)

    def classic_updates(self) -> None:
        """From the next start on, as with a source that does not offer the oplog's own diffs."""
        (self.folder / "classic-updates").touch()

    def force_classic_updates(self) -> None:
        """Start again, as with a source that does not offer the oplog's own diffs."""
        self.classic_updates()
        self.kill()
        self.run()

    def believe_the_source_is_old(self) -> None:
        """Start again, as with a source before 6.0: no definition events, no UUIDs."""
        (self.folder / "old-source").touch()
        self.kill()
        self.run()

    def save_every_page(self) -> None:
        """From the next start on, the copy saves its resume point after every page."""
        (self.folder / "save-every-page").touch()

    def watch_closely(self) -> None:
        """From the next start on, the source's oplog is looked at several times a second."""
        (self.folder / "watch-closely").touch()

    def kill_at(self, point: Point, subject: str = "", number: int = 1) -> None:
        (self.folder / f"kill-{slug(point, subject)}-{number}").touch()

    @contextlib.contextmanager
    def held_at(self, point: Point, subject: str = "", number: int = 1) -> Iterator[None]:
        """Within the block, the daemon waits at the point that it reaches there."""
        name = f"{slug(point, subject)}-{number}"
        (self.folder / f"hold-{name}").touch()
        try:
            yield
        finally:
            (self.folder / f"hold-{name}").unlink()

    def wait_until_reached(self, point: Point, subject: str = "", number: int = 1) -> None:
        wait_for(lambda: self.has_reached(point, subject, number), f"{point.value} is reached")

    def has_reached(self, point: Point, subject: str = "", number: int = 1) -> bool:
        return (self.folder / f"reached-{slug(point, subject)}-{number}").exists()

    def wait_until_killed(self) -> None:
        """Wait for the end of the process by the SIGKILL of `kill_at`, and forget that order."""
        assert self._process is not None
        assert self._process.wait(60) == -signal.SIGKILL
        self.forget_kills()

    def forget_kills(self) -> None:
        for order in self.folder.glob("kill-*"):
            order.unlink()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def terminate(self) -> int:
        """Ask the process to end, and return its exit status."""
        self.ask_to_end()
        return self.wait_until_ended(30)

    def ask_to_end(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait_until_ended(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def _in_state(progress: dict[str, Any], states: tuple[str, ...]) -> dict[str, Any] | None:
    return progress if progress["state"] in states else None
