"""The service as a separate process between two clusters, used only through its command line and its API."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import requests

from tests.bench.clusters import Cluster
from tests.bench.processes import Child, python

# The poll interval, long enough that polling does not slow the service down, and the longest wait; both in seconds.
_POLL_INTERVAL = 0.05
_DEADLINE = 3600.0
_START = {"source": "cluster0", "destination": "cluster1"}


class Daemon:
    """A running service process with methods for its commands. Use `running` to start one."""

    def __init__(self, child: Child, port: int) -> None:
        self._child = child
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self._session = requests.Session()
        self._session.trust_env = False
        self.pid = child.process.pid

    def start(self, verified: bool = False, **options: Any) -> None:
        self._post("start", {**_body(verified), **options})

    def preflight(self, verified: bool = False) -> None:
        self._post("preflight", _body(verified))

    def commit(self) -> None:
        self._post("commit", {})

    def pause_sync(self) -> None:
        self._post("pause", {})

    def resume_sync(self) -> None:
        self._post("resume", {})

    def metric(self, name: str) -> float:
        """Return the value of a metric that has no labels."""
        # Use a new connection: the daemon closes idle connections when it resumes.
        with requests.Session() as session:
            session.trust_env = False
            text = session.get(self._url.replace("/api/v1", "/metrics")).text
        lines = (line.split() for line in text.splitlines())
        return next(float(words[1]) for words in lines if words[0] == name)

    def wait_until_initialized(self) -> None:
        self.wait_until(lambda progress: progress["info"] != "initializing collections and indexes")

    def wait_until_comparing(self) -> None:
        """Wait until the verification has listed the collections, and begins to compare their documents."""
        self.wait_until(
            lambda progress: _verification(progress)["estimatedDocumentCount"] is not None
        )

    def wait_until_compared(self) -> None:
        """Wait until the first pass of the verification is complete."""
        self.wait_until(lambda progress: _is_compared(_verification(progress)))

    def wait_until_copied(self) -> None:
        self.wait_until(lambda progress: progress["info"] == "change event application")

    def wait_until_caught_up(self) -> None:
        self.wait_until(lambda progress: bool(progress["canCommit"]))

    def wait_until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Poll the progress until the condition is true for the answer.

        Raises RuntimeError if the sync has failed, and TimeoutError after an hour.
        """
        wait_for(lambda: condition(self._progress()), _POLL_INTERVAL)

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def is_ready(self) -> bool:
        if self._child.process.poll() is not None:
            raise self._error("it has ended")
        try:
            return bool(self._progress()["state"] != "INITIALIZING")
        except requests.ConnectionError:
            return False

    def _post(self, command: str, body: dict[str, Any]) -> None:
        answer = self._session.post(f"{self._url}/{command}", json=body).json()
        if not answer["success"]:
            raise self._error(f"{command} was refused: {answer}")

    def _progress(self) -> dict[str, Any]:
        progress: dict[str, Any] = self._session.get(f"{self._url}/progress").json()["progress"]
        if progress["state"] == "FAILED":
            raise self._error(f"{progress['error']}: {progress['errorDescription']}")
        return progress

    def _error(self, what: str) -> RuntimeError:
        return RuntimeError(f"The daemon failed: {what}\n{self._child.said}")


def _verification(progress: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = progress["verification"]["source"]
    return found


def _is_compared(verification: dict[str, Any]) -> bool:
    return bool(verification["scannedCollectionCount"] == verification["totalCollectionCount"])


def _body(verified: bool) -> dict[str, Any]:
    return {**_START, "verification": {"enabled": verified}}


@contextmanager
def running(
    source: Cluster,
    destination: Cluster,
    *options: str,
    program: Sequence[str] = ("syncsvc",),
    uri_options: str = "",
) -> Iterator[Daemon]:
    """Run the service during the block. `options` are more command line options.

    `program` is the name of the module to run, with arguments that precede all options. `uri_options` is appended to
    both connection strings.
    """
    port = free_port()
    uris = ("--cluster0", source.uri + uri_options, "--cluster1", destination.uri + uri_options)
    with python(["-m", *program, *uris, "--port", str(port), *options]) as child:
        daemon = Daemon(child, port)
        wait_for(daemon.is_ready, _POLL_INTERVAL)
        yield daemon


def wait_for(condition: Callable[[], bool], interval: float) -> None:
    pause = threading.Event()
    deadline = monotonic() + _DEADLINE
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"the condition did not become true within {_DEADLINE:.0f} seconds")
        pause.wait(interval)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
