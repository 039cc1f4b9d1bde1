"""Runs a service in its own process.

A test controls the service through its HTTP API, as a user would, and through files that tell the process to wait or to
kill itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import socket
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import cycle
from pathlib import Path
from random import SystemRandom
from typing import IO, Any, Self
from urllib.parse import urljoin, urlsplit

import requests

from tests.support.descriptions import assert_described
from tests.support.forked import Forked, Program
from tests.support.obedience import slug
from tests.support.tokens import bearer
from tests.support.waiting import PATIENCE, wait_for

ROOT = Path(__file__).parents[2]


# These ports are below the ephemeral ports of the kernel, so that no client connection can occupy the port of a process
# that is down for a moment. They are also below the ports of the sandbox's servers.
_FIRST_PORT, _PORTS_EACH, _RANGES = 20_000, 200, 35


@cache
def _ports() -> Iterator[int]:
    """Return an endless iterator over a range of ports that no other test run uses while this process lives.

    This keeps a service of another test from taking the port of a service that is being restarted.
    """
    for number in SystemRandom().sample(range(_RANGES), k=_RANGES):
        # Do not use the temporary folder: a test may replace it, and check that nothing is left there.
        claim = Path(f"/var/tmp/syncsvc-test-ports-{number}").open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            continue
        _CLAIMS.append(claim)
        first = _FIRST_PORT + _PORTS_EACH * number
        return cycle(SystemRandom().sample(range(first, first + _PORTS_EACH), k=_PORTS_EACH))
    raise AssertionError("all ranges of ports are taken by other runs of the tests")


# Kept open until this process ends, because closing a file releases its lock.
_CLAIMS: list[IO[str]] = []


def free_port() -> int:
    for port in _ports():
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: the ports never end")


def connection(option: str, source: str | Path) -> tuple[str, str]:
    """Return the arguments for `option`, such as cluster0: --cluster0 with a string, or --cluster0File with a path."""
    if isinstance(source, Path):
        return f"--{option}File", str(source)
    return f"--{option}", source


class ServiceProcess:
    """A service process that can be restarted with the same options.

    `program` runs the service so that it obeys the files of the test. The answers to `post`, `patch` and `progress` are
    checked against the OpenAPI description of `service`; those to `get` and `get_with` are not.
    """

    service: str
    program: Program
    log_file: str
    port_option: str

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._options = options
        self._process: Forked | None = None
        self._http = requests.Session()
        # Without this, the library `requests` would look up proxy and password settings for every request.
        self._http.trust_env = False
        self._said_before = 0

    @property
    def log(self) -> str:
        """Return the logs of all processes that have run in this folder, in order."""
        stem, dot, suffix = self.log_file.partition(".")
        rotated = sorted((self.folder / "log").glob(f"{stem}-*{dot}{suffix}"))
        files = [*rotated, self.folder / "log" / self.log_file]
        return "".join(each.read_text() for each in files)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Return the exit status; None while the process runs."""
        assert self._process is not None
        return self._process.poll()

    def run(self, ready: bool = True) -> None:
        """Start the process, and wait until it accepts commands or has killed itself at a point that `kill_at` has set.

        If `ready` is false, wait only until the process answers requests. If the port is taken before the process can
        listen, start the process again on another port.
        """
        while True:
            self.launch()
            wait_for(lambda: self.exit_status is not None or self.answers(ready), "it answers")
            if self.exit_status is None or self._was_killed_as_ordered():
                return
            said = self._output.read_text()[self._said_before :]
            assert "AddressNotAvailable" in said, f"the process ended: {said}"
            self.port = free_port()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Start the process as `run` does, and close it at the end of the block."""
        try:
            self.run()
            yield self
        finally:
            self.close()

    def launch(self) -> None:
        """Start the process without waiting for it."""
        options = (*self._options, self.port_option, str(self.port))
        self._output.touch()
        self._said_before = self._output.stat().st_size
        self._process = Forked(type(self).program, self.folder, options, self._output)

    @property
    def output(self) -> str:
        """Return the standard output and standard error of all processes that have run in this folder."""
        return self._output.read_text()

    @property
    def _output(self) -> Path:
        return self.folder / "output"

    def _was_killed_as_ordered(self) -> bool:
        return self.exit_status == -signal.SIGKILL and any(self.folder.glob("kill-*"))

    def answers(self, ready: bool = False) -> bool:
        """Return whether the API answers requests. If `ready` is true, the process must also accept commands."""
        progress = self.progress_if_it_answers()
        return progress is not None and (progress.get("state") != "INITIALIZING" or not ready)

    def progress_if_it_answers(self) -> dict[str, Any] | None:
        """Return the progress; None if the process does not answer, because it is starting or was killed."""
        # A process that is killed while it answers sends a truncated answer.
        broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
        with contextlib.suppress(*broken):
            return self.progress()
        return None

    def url(self, command: str) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1/{command}"

    def use_token(self, token: str) -> None:
        """Send this token with all later requests."""
        self._http.headers.update(bearer(token))

    def post(self, command: str, body: Any = None, **options: Any) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
        answer = self._http.post(self.url(command), data=data, timeout=PATIENCE, **options)
        self._assert_described(answer)
        return answer

    def patch(self, command: str, body: Any) -> requests.Response:
        answer = self._http.patch(self.url(command), data=json.dumps(body), timeout=PATIENCE)
        self._assert_described(answer)
        return answer

    def post_unanswered(self, command: str, body: Any) -> None:
        """Send a command to a process that may be killed before it answers; ignore a missing answer."""
        with contextlib.suppress(requests.RequestException):
            self.post(command, body)

    def get(self, path: str, **parameters: str | int) -> requests.Response:
        """Send a GET request and return its answer. `path` is relative to /api/v1/, or absolute."""
        url = urljoin(self.url(""), path)
        return self._http.get(url, params=parameters, timeout=PATIENCE)

    def get_with(self, path: str, headers: dict[str, str]) -> requests.Response:
        """Send a GET request with these headers and return its answer.

        `path` is relative to /api/v1/, or absolute.
        """
        return self._http.get(urljoin(self.url(""), path), headers=headers, timeout=PATIENCE)

    def progress(self) -> dict[str, Any]:
        answer = self.get("progress")
        self._assert_described(answer)
        progress: dict[str, Any] = answer.json()["progress"]
        return progress

    def warnings(self, *texts: str) -> list[str]:
        """Return the warnings in the progress that contain all of these texts."""
        shown = self.progress().get("warnings", ())
        return [each for each in shown if all(text in each for text in texts)]

    def wait_for_warning(self, *texts: str) -> str:
        """Wait until a warning contains all of these texts, and return the first such warning."""
        return wait_for(lambda: self.warnings(*texts), f"a warning: {' ... '.join(texts)}")[0]

    def wait_without_warning(self, *texts: str) -> None:
        """Wait until no warning contains all of these texts; without a text, until there is no warning at all."""
        wait_for(lambda: not self.warnings(*texts), f"no warning: {' ... '.join(texts)}")

    def _assert_described(self, answer: requests.Response) -> None:
        path = urlsplit(answer.url).path
        kind = answer.headers["Content-Type"]
        method = str(answer.request.method)
        assert_described(self.service, method, path, answer.status_code, kind, answer.text)

    def kill_at(self, point: Enum, subject: str = "", number: int = 1) -> None:
        (self.folder / f"kill-{slug(point, subject)}-{number}").touch()

    @contextlib.contextmanager
    def held_at(self, point: Enum, subject: str = "", number: int = 1) -> Iterator[None]:
        """Make the process wait, until the end of the block, when it passes `point` for the `number`-th time.

        Only passes with this `subject`, such as the name of a collection, count; without a subject, all passes.
        """
        name = f"{slug(point, subject)}-{number}"
        (self.folder / f"hold-{name}").touch()
        try:
            yield
        finally:
            (self.folder / f"hold-{name}").unlink()

    def wait_until_reached(self, point: Enum, subject: str = "", number: int = 1) -> None:
        wait_for(lambda: self.has_reached(point, subject, number), f"{point.value} is reached")

    def has_reached(self, point: Enum, subject: str = "", number: int = 1) -> bool:
        return (self.folder / f"reached-{slug(point, subject)}-{number}").exists()

    def wait_until_killed(self) -> None:
        """Wait until the process has killed itself at a point that `kill_at` has set; then remove all such points."""
        assert self.wait_until_ended() == -signal.SIGKILL
        self.forget_kills()

    def forget_kills(self) -> None:
        for order in self.folder.glob("kill-*"):
            order.unlink()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait_until_ended()

    def terminate(self) -> int:
        """Send SIGTERM to the process, wait until it has ended, and return its exit status."""
        self.ask_to_end()
        return self.wait_until_ended()

    def ask_to_end(self) -> None:
        self.signal(signal.SIGTERM)

    def wait_until_ended(self, seconds: float = PATIENCE) -> int:
        wait_for(lambda: self.exit_status is not None, "the process has ended", seconds)
        assert self.exit_status is not None
        return self.exit_status

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        self._http.close()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.signal(number)
