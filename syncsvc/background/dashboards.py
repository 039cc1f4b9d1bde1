"""A separate thread that updates the saved documents which dashboards for mongosync read.

No other thread waits for these writes, which may take long. A failed write is retried, and does not harm the sync. If
writes keep failing, the progress shows one warning.
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

# How often the thread checks whether the documents are due, in seconds.
_POLL = 1.0
# This many attempts in a row must fail before the warning is shown, because an election can make single attempts fail.
_MOST_FAILURES = 3
_STALE = (
    "The documents for dashboards of mongosync (resumeData and globalState in the metadata database) cannot be "
    "updated: {}. The update is retried. The failure does not affect the sync, which never reads these documents. If "
    "another program deleted or changed the documents, pause and resume the sync, or restart this process, to write "
    "them again."
)


class Dashboards:
    """Writes the documents for dashboards every `interval` seconds, and when the state, phase, owner or epoch changes.

    Writes nothing before the first start, during a reset, and once another process owns the run. While the run is
    COMMITTED, writes the documents only until this has succeeded once.

    `database` is the name of the metadata database. `clusters` returns the clusters of this process by name. `writer`
    takes the name of a cluster, and returns a writer to that cluster.
    """

    def __init__(
        self,
        progress: Progress,
        clusters: Callable[[], Mapping[str, Cluster]],
        writer: Callable[[str], ClusterWriter],
        database: str,
        interval: float,
    ) -> None:
        self._progress = progress
        self._database = database
        self._clusters = clusters
        self._writer = writer
        self._interval = interval
        self._sync: Sync | None = None
        # The `_summary` of the record at the last attempt, and the time of that attempt (monotonic clock).
        self._written: object = None
        self._written_at = 0.0
        self._failures = 0

    def watch(self, sync: Sync) -> None:
        """Store a snapshot of the sync. `run`, in another thread, writes the documents from the newest snapshot."""
        self._sync = sync

    def run(self, stop: StopToken) -> None:
        """Write the documents whenever they are due, until `stop` is set. Raises `Cancelled` then."""
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
        writer = self._writer(record.home)
        try:
            written = documents(record, addresses, time())
            found = [update(writer, self._database, name, each) for name, each in written.items()]
            problem = (
                None
                if all(found)
                else "a document for dashboards was deleted, or belongs to another process"
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
    """Return whether to write documents for the run: not during a reset, and not if another process owns the run."""
    superseded = record.failure is not None and record.failure.name == errors.SUPERSEDED.name
    return record.state is not State.RESETTING and not superseded


def _summary(record: RunRecord) -> object:
    """Return the values of the record whose changes dashboards must show at once, without waiting for the interval."""
    return record.owner, record.epoch, record.state, phase_shown(record)
