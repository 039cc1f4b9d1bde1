"""Runs a small migration with installed programs, while the source is written to.

At the end, the tests' own comparison and the installed verifier must find the clusters equal.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.pair import Pair
from tests.support.waiting import PATIENCE, wait_for


class Installed(Protocol):
    """A function that returns a command line for an installed program; `command` is its name and its arguments."""

    def __call__(self, *command: str) -> list[str]: ...


class Operator:
    """Operates a sync between the clusters of `pair` with the installed syncctl."""

    def __init__(self, installed: Installed, pair: Pair, port: int) -> None:
        self._installed = installed
        self._pair = pair
        self._url = f"http://127.0.0.1:{port}"

    def __call__(self, *arguments: str) -> str:
        """Run syncctl, and return its output; fail if its status is not 0."""
        return _run(self._installed("syncctl", "--url", self._url, *arguments))

    def wait_for_state(self, state: str) -> None:
        def is_reached() -> bool:
            command = self._installed("syncctl", "--url", self._url, "status")
            done = subprocess.run(command, capture_output=True, text=True)
            return re.search(rf"\b{state}\b", done.stdout) is not None

        wait_for(is_reached, f"the state is {state}")

    def migrate(self) -> None:
        """Start a sync while the source is written to, and commit it."""
        with written(self._pair):
            self.start()
            self("watch", "--until", "canCommit")
        self.commit()

    def start(self) -> None:
        self.wait_for_state("IDLE")
        assert "permit a start" in self("doctor")
        self("start")

    def commit(self) -> None:
        """Commit as soon as possible. Then compare the clusters, with the sandbox's comparison and the verifier."""
        self("watch", "--until", "canCommit")
        assert "COMMITTED" in self("commit", "--wait", "--yes")
        self._pair.assert_equal()
        uris = self._pair.source.uri, self._pair.destination.uri
        clusters = ("--srcURI", uris[0], "--destURI", uris[1])
        _run(self._installed("syncsvc-verifier", *clusters, "--verifyAll", "--checkOnce"))


def migrate(installed: Installed, pair: Pair, port: int) -> None:
    """Start a daemon, migrate with it, and stop it. `port` is the port of its API."""
    clusters = ("--cluster0", pair.source.uri, "--cluster1", pair.destination.uri)
    command = installed("syncsvc", *clusters, "--port", str(port))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as daemon:
        try:
            Operator(installed, pair, port).migrate()
        finally:
            daemon.terminate()
            assert daemon.wait(PATIENCE) == 0


@contextmanager
def written(pair: Pair) -> Iterator[None]:
    """Fill the source, and write to it in other threads during the block.

    At the end of the block, wait until every kind of write has happened; then stop the threads.
    """
    writes.fill(pair.source.client, 2000)
    with Workload([pair.source.client.d.c, pair.source.client.d.other], seed=1) as workload:
        yield
        wait_for(lambda: _every_kind(workload), "writes of every kind")
        workload.stop()


def _every_kind(workload: Workload) -> bool:
    workload.check()
    done = workload.written
    return min(done.inserted, done.updated, done.deleted) > 0


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
