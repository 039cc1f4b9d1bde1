"""Keeps the documents for dashboards of mongosync up to date: a watcher with a thread of its own.

A write may take long, and nothing else waits for it. A failure never harms the sync: it is repeated, and becomes one
warning if it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic, time

from pymongo.errors import PyMongoError

from syncsvc import errors
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.reports.dashboards import documents
from syncsvc.reports.sync import Sync, phase_shown
from syncsvc.saved.dashboards import update
from syncsvc.saved.run import RunRecord
from syncsvc.state import State
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# How often it is checked whether the documents must be written, in seconds.
_POLL = 1.0
# So many attempts must fail before a warning: an election or an outage has a warning of its own.
_MOST_FAILURES = 3
_STALE = (
    "The documents for dashboards of mongosync (resumeData and globalState in the metadata database) cannot be "
    "updated: {}. This is retried, and does not affect the sync, which never reads them. If they were deleted or "
    "changed, pause and resume the sync to write them again."
)


class Dashboards:
    """Writes the documents every `interval` seconds, and when the state or the phase changes.

    `clusters` returns the clusters of this process, and `writer` a writer to the cluster with that name.
    """

    def __init__(
        self,
        progress: Progress,
        clusters: Callable[[], Mapping[str, Cluster]],
        writer: Callable[[str], ClusterWriter],
        interval: float,
    ) -> None:
        self._progress = progress
        self._clusters = clusters
        self._writer = writer
        self._interval = interval
        self._sync: Sync | None = None
        # What the last attempt wrote, and when (monotonic clock).
        self._written: object = None
        self._written_at = 0.0
        self._failures = 0

    def watch(self, sync: Sync) -> None:
        """Keep the newest state of the sync, for the thread."""
        self._sync = sync

    def run(self, stop: StopToken) -> None:
        """Write the documents when they are due, until stopped. Raises `Cancelled`."""
        while True:
            record = None if self._sync is None else self._sync.record
            if record is None or not _is_reported(record):
                self._end_failures()
            elif self._is_due(record):
                self._written, self._written_at = _summary(record), monotonic()
                self._write(record)
            stop.sleep(_POLL)

    def _is_due(self, record: RunRecord) -> bool:
        if _summary(record) != self._written:
            return True
        # Nothing changes any more, and the operator may drop the metadata.
        over = record.state is State.COMMITTED and not self._failures
        return not over and monotonic() - self._written_at >= self._interval

    def _write(self, record: RunRecord) -> None:
        addresses = {name: each.facts.address for name, each in self._clusters().items()}
        writer = self._writer(record.options.destination)
        try:
            written = documents(record, addresses, time())
            found = [update(writer, name, each) for name, each in written.items()]
            problem = (
                None if all(found) else "one of them was deleted, or belongs to another process"
            )
        except PyMongoError as error:
            problem = failures.text_of(error)
        if problem is None:
            self._end_failures()
            return
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self._progress.warn(WarningKind.DASHBOARDS_STALE, _STALE.format(problem))

    def _end_failures(self) -> None:
        self._failures = 0
        self._progress.end_warning(WarningKind.DASHBOARDS_STALE)


def _is_reported(record: RunRecord) -> bool:
    """Return whether this process reports the run: not during a reset, nor if another process owns the run now."""
    superseded = record.failure is not None and record.failure.name == errors.SUPERSEDED.name
    return record.state is not State.RESETTING and not superseded


def _summary(record: RunRecord) -> object:
    """Return a value whose change makes new documents due at once."""
    return record.owner, record.epoch, record.state, phase_shown(record)
