"""Blocks user writes to a cluster (`setUserWriteBlockMode`), and later restores the original mode.

The original mode (blocked or not) is saved in the run record before writes are blocked, and removed from the record
after it is restored. So the record names every cluster that this sync blocks, even if the process was killed
between two steps. Each step is idempotent.

From MongoDB 8.0.13 on, a block can have a `reason` (SERVER-102961). A replica set then refuses to block or unblock
writes with another reason, or without a reason. This module sends no reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymongo.errors import OperationFailure

from syncsvc.engine.run.points import Point
from syncsvc.errors import FOREIGN_WRITE_BLOCK
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_store import RunStore
from syncsvc.state import Phase
from verifier.cluster.failures import ILLEGAL_OPERATION, text_of
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.observer import Observer

# The value that `serverStatus` reports for a replica set whose user writes are blocked.
_BLOCKED = 2
_COMMAND = "setUserWriteBlockMode"
# Collections of the database `config` of a sharded cluster.
_CHANGES, _MODES = "sharding_configsvr_coordinators", "user_writes_critical_sections"


@dataclass(frozen=True)
class WriteBlock:
    """Blocks and unblocks user writes on one cluster. `cluster` is its name in the run record, such as cluster0.

    Every method raises the errors of `ClusterWriter.administer`; all except `is_set` also raise those of
    `RunStore.update`. `set`, `hold`, `lift` and `put_back` also raise OperationError ForeignWriteBlock if the server
    refuses the change, because user writes are blocked with a reason.
    """

    cluster: str
    sharded: bool
    writer: ClusterWriter
    run: RunStore
    observe: Observer

    def set(self) -> None:
        """Block user writes. Before the first block, save in the run record whether they are already blocked.

        After the error ForeignWriteBlock, no mode is saved: the sync must not restore a block that others have set.
        """
        found = self.run.record.found_blocked
        if self.cluster not in found:
            self.run.update(found_blocked={**found, self.cluster: self.is_set()})
            self.observe(Point.BLOCK_SAVED, self.cluster)
        try:
            self._command(True)
        except OperationError as error:
            if error.kind is FOREIGN_WRITE_BLOCK:
                # Someone else has set this block, and may lift it: the sync must not restore it later.
                self._forget()
            raise

    def hold(self) -> None:
        """Block user writes like `set`, but do not repeat the command if the block of this sync still exists.

        WARNING: repeating the command makes the servers abort all index builds on the cluster. A sharded cluster that
        is still changing its mode gets the command again, which waits until all shards have the block.
        """
        if (
            self.cluster not in self.run.record.found_blocked
            or self._changes()
            or not self.is_set()
        ):
            self.set()

    def keep(self) -> bool:
        """Block user writes like `set`, but accept an existing block with a reason; return False for such a block."""
        try:
            self.set()
        except OperationError as error:
            if error.kind is not FOREIGN_WRITE_BLOCK:
                raise
            return False
        return True

    def lift(self) -> None:
        """Allow user writes, even if they were blocked before this sync; remove the saved mode from the run record."""
        self._command(False)
        self._end()

    def put_back(self) -> None:
        """Restore the saved mode, and remove it from the run record; a no-op if no mode is saved."""
        found = self.run.record.found_blocked
        if self.cluster in found:
            if found[self.cluster]:
                self.keep()
            else:
                self._command(False)
            self._end()

    def _end(self) -> None:
        self.observe(Point.BLOCK_ENDED, self.cluster)
        self._forget()

    def _forget(self) -> None:
        found = self.run.record.found_blocked
        self.run.update(found_blocked={name: found[name] for name in found if name != self.cluster})

    def is_set(self) -> bool:
        """Return whether user writes are blocked on the cluster.

        On a sharded cluster, a mode change that has begun counts as complete: the config server completes it on all
        shards, even if the mongos or its client has died.
        """
        if self.sharded:
            # Routers do not report the mode. Their config server stores the change that it is making, and the mode that
            # all shards have had since the last complete change.
            for change in self._changes():
                return bool(change["block"])
            return bool(self._configured(_MODES, {"blockUserWrites": True}))
        status = self.writer.administer({"serverStatus": 1})
        return bool(status["repl"].get("userWriteBlockMode") == _BLOCKED)

    def _changes(self) -> list[dict[str, Any]]:
        """Return the change of the mode that the config server is making; empty if none, or if not sharded."""
        return self._configured(_CHANGES, {"_id.coordinatorType": _COMMAND}) if self.sharded else []

    def _configured(self, collection: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        command = {"find": collection, "filter": query}
        found: list[dict[str, Any]] = self.writer.administer(command, "config")["cursor"][
            "firstBatch"
        ]
        return found

    def _command(self, blocked: bool) -> None:
        try:
            self.writer.administer({_COMMAND: 1, "global": blocked})
        except OperationFailure as error:
            if error.code != ILLEGAL_OPERATION or not self.is_set():
                raise
            raise OperationError(
                FOREIGN_WRITE_BLOCK, f"{self.cluster}: {text_of(error)}."
            ) from error


def to_put_back(record: RunRecord) -> tuple[str, ...]:
    """Return the names of the clusters whose original write-block mode is restored when the run has failed.

    Usually, this is only the source, where production continues. The destination stays blocked, so that users do not
    mistake it for a complete copy. Before the copy begins, both clusters are returned. If users may already write to
    the destination, no cluster is returned.
    """
    if record.can_write:
        return ()
    if record.phase is Phase.INITIALIZING:
        return (record.source, record.destination)
    return (record.source,)
