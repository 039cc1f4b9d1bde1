"""Answers queries of the API without contacting a cluster: from a snapshot of the sync and a history of its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Any

from syncsvc.figures.history import History
from syncsvc.reports.namespaces import TableRequest, namespaces_report, namespaces_table
from syncsvc.reports.observation import is_clean, sample_of
from syncsvc.reports.overview import Observed, overview_report
from syncsvc.reports.progress_answer import progress_report
from syncsvc.reports.standing import refuse_on_standby, shown_by_standby, standing_report
from syncsvc.reports.sync import Sync
from verifier.runtime.recent import RecentCommand


class Queries:
    """Answers the API's queries from the memory of this process. `instance` is the ID of this instance.

    `take` returns a snapshot of everything that the process knows about the sync; `addresses` returns the addresses of
    the clusters, by name. `history_step` is the shortest time between two points of the charts, in seconds.
    """

    def __init__(
        self,
        instance: str,
        take: Callable[[], Sync],
        addresses: Callable[[], Mapping[str, str]],
        history_step: float,
    ) -> None:
        self._instance = instance
        self._take = take
        self._addresses = addresses
        self._history = History(history_step)

    def record(self, sync: Sync) -> None:
        """Add the current figures of the sync to the history for the charts. Call this every second.

        Also record when the verification last knew of no difference.
        """
        snapshot, now = sync.snapshot, time()
        self._history.record(sample_of(sync, now))
        if is_clean(snapshot.check):
            self._history.last_clean = now
        elif snapshot.check is None:
            self._history.last_clean = None

    def progress(self) -> dict[str, Any]:
        """Return the document `progress` in the answer to `GET /api/v1/progress`.

        With `--standby`, it includes the role of this process and the lease. A standby shows the progress that the
        active daemon has saved in the lease, and its own warnings; without saved progress, its own progress.
        """
        return self._progress_of(self._take())

    def own_progress(self) -> dict[str, Any]:
        """Return the document `progress` of this process, even if it is a standby."""
        return self._own_progress_of(self._take())

    def overview(
        self, history: str, since: str | None, commands: tuple[RecentCommand, ...]
    ) -> dict[str, Any]:
        """Return the field `overview` of the answer to `GET /api/v1/overview`, with the points of one chart series.

        `history` is the series "15m", "6h" or "all". Only the points after the cursor `since` are included; all points
        if it is None or no longer valid. `commands` are the latest commands that the API has answered, or that this
        process has sent itself.
        """
        sync, series = self._take(), self._history
        last_minute, lately = series.averages()
        points = series.points(history, since)
        observed = Observed(points, last_minute, lately, series.last_clean, commands)
        return overview_report(sync, self._progress_of(sync), observed)

    def namespaces(self, database: str | None, after: str | None, limit: int) -> dict[str, Any]:
        """Return the answer to `GET /api/v1/namespaces` except `success`: one page of the collections' progress.

        The page contains at most `limit` collections of `database` (None: of all databases), whose names sort after
        `after` (None: from the first name on). Raises OperationError NotActive if this process is a standby.
        """
        sync = self._take()
        refuse_on_standby(sync.standing)
        return namespaces_report(sync, database, after, limit)

    def namespaces_table(self, request: TableRequest) -> dict[str, Any]:
        """Return the answer to `GET /api/v1/overview/namespaces` except `success`: rows of the page's table.

        `namespaces` are the requested rows, one for each collection, and `total` is the number of all collections that
        the request selects.
        Raises OperationError NotActive if this process is a standby.
        """
        sync = self._take()
        refuse_on_standby(sync.standing)
        return namespaces_table(sync, request)

    def _progress_of(self, sync: Sync) -> dict[str, Any]:
        standing, shown = sync.standing, self._own_progress_of(sync)
        if standing is None:
            return shown
        if standing.is_standby:
            saved = None if standing.lease is None else standing.lease.progress
            shown = shown_by_standby(shown, saved, sync.snapshot.waits)
        return {**shown, **standing_report(standing)}

    def _own_progress_of(self, sync: Sync) -> dict[str, Any]:
        return progress_report(sync, self._addresses(), self._instance)
