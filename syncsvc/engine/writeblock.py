"""Keeps users from writing to a cluster (`setUserWriteBlockMode`), and gives it back as it was found.

How a cluster was found is saved before its users are blocked, and forgotten after they are let in again. So whoever
reads the record knows of every block of ours, wherever a process was killed; each step may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.engine.observe import Observer, Point
from syncsvc.saved.run import RunStore
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

# As `serverStatus` tells it.
_BLOCKED = 2


@dataclass(frozen=True)
class WriteBlock:
    """The block of one cluster, by the name that the record knows it by. All methods raise the driver's errors."""

    cluster: str
    client: Client
    writer: ClusterWriter
    run: RunStore
    observe: Observer

    def set(self, stop: StopToken) -> None:
        """Refuse the writes of users from now on."""
        found = self.run.record.found_blocked
        if self.cluster not in found:
            blocked = retry(lambda: users_are_blocked(self.client), failures.is_transient, stop)
            self.run.update(found_blocked={**found, self.cluster: blocked})
            self.observe(Point.BLOCK_SAVED, self.cluster)
        self._command(True)

    def lift(self) -> None:
        """Let users write, also where somebody else had blocked them before us."""
        self._end(False)

    def put_back(self) -> None:
        """Leave the cluster as it was found; nothing where we did not block it."""
        found = self.run.record.found_blocked
        if self.cluster in found:
            self._end(found[self.cluster])

    def _end(self, blocked: bool) -> None:
        self._command(blocked)
        found = self.run.record.found_blocked
        left = {name: before for name, before in found.items() if name != self.cluster}
        self.run.update(found_blocked=left)

    def _command(self, blocked: bool) -> None:
        self.writer.administer({"setUserWriteBlockMode": 1, "global": blocked})


def users_are_blocked(client: Client) -> bool:
    """Raises the driver's errors."""
    status = client.admin.command("serverStatus")
    return bool(status["repl"].get("userWriteBlockMode") == _BLOCKED)
