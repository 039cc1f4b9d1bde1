"""Keeps users from writing to a cluster (`setUserWriteBlockMode`), and gives it back as it was found.

How a cluster was found is saved before its users are blocked, and forgotten after they are let in again. So whoever
reads the record knows of every block of ours, wherever a process was killed; each step may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.engine.run.points import Observer, Point
from syncsvc.saved.run import RunRecord, RunStore
from syncsvc.state import Phase
from verifier.cluster.writer import ClusterWriter

# As `serverStatus` tells it.
_BLOCKED = 2


@dataclass(frozen=True)
class WriteBlock:
    """The block of one cluster, by the name that the record knows it by. Every method raises the driver's errors."""

    cluster: str
    sharded: bool
    writer: ClusterWriter
    run: RunStore
    observe: Observer

    def set(self) -> None:
        """Refuse the writes of users from now on."""
        found = self.run.record.found_blocked
        if self.cluster not in found:
            self.run.update(found_blocked={**found, self.cluster: self._is_set()})
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
        self.run.update(found_blocked={name: found[name] for name in found if name != self.cluster})

    def _is_set(self) -> bool:
        if self.sharded:
            # Routers do not tell; their config server keeps it here for all shards.
            kept = {"find": "user_writes_critical_sections", "filter": {"blockUserWrites": True}}
            return bool(self.writer.administer(kept, "config")["cursor"]["firstBatch"])
        status = self.writer.administer({"serverStatus": 1})
        return bool(status["repl"].get("userWriteBlockMode") == _BLOCKED)

    def _command(self, blocked: bool) -> None:
        self.writer.administer({"setUserWriteBlockMode": 1, "global": blocked})


def to_put_back(record: RunRecord) -> tuple[str, ...]:
    """The clusters that a run which failed for good leaves as it found them.

    Production must go on where it was: on the source, unless users were told to write to the destination. The
    destination stays blocked, so that nobody takes it for good, unless nothing was copied yet.
    """
    if record.can_write:
        return ()
    if record.phase is Phase.INITIALIZING:
        return (record.source, record.destination)
    return (record.source,)
