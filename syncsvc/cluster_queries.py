"""The queries of the API that read a cluster. None of them changes the sync, but a report first saves the journal."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from time import time
from typing import Any

from syncsvc import __version__, errors
from syncsvc.gate import Gate
from syncsvc.limits import Limits
from syncsvc.reports.principals import principals_report
from syncsvc.reports.report import Subject, report
from syncsvc.reports.reset import reset_report
from syncsvc.reports.standing import refuse_on_standby
from syncsvc.reports.sync import Sync
from syncsvc.resuming import refuse_repair
from syncsvc.running.current import CurrentRun
from syncsvc.running.principal_check import not_requested
from syncsvc.saved.evidence import gather
from syncsvc.saved.journal import Site
from syncsvc.saved.mismatches import RepairPlan, mismatches, repair_plan, repaired
from syncsvc.saved.registry import CollectionRecord
from syncsvc.state import State, Trigger
from verifier.cluster.bounds import PATIENCE, answered_soon
from verifier.compare.mismatch import StoredMismatch
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken


class ClusterQueries:
    """Answers the API queries that read a cluster, in one process.

    `gate` admits or refuses a query, and `take` returns a snapshot of the sync. `keep_journal` saves the journal, and
    `limits` returns the current limits; only `report` uses these two.
    """

    def __init__(
        self,
        run: CurrentRun,
        gate: Gate,
        take: Callable[[], Sync],
        keep_journal: Callable[[], None],
        limits: Callable[[], Limits],
        stop: StopToken,
    ) -> None:
        self._run = run
        self._gate = gate
        self._take = take
        self._keep_journal = keep_journal
        self._limits = limits
        self._stop = stop

    def repair_plan(self) -> RepairPlan:
        """Return the plan of a repair of the saved differences. Raises OperationError, for example CannotRepair."""
        self._gate.await_startup()
        with self._gate.while_active(), impatient(PATIENCE):
            runner = self._run.runner_for(Trigger.REPAIR)
            refuse_repair(runner.record)
            return repair_plan(self._run.metadata_of(runner), runner.replaced(), self._stop)

    def users(self) -> dict[str, Any]:
        """Return the effect that a commit would have now on each user and role, in the form of `principals_report`.

        Raises OperationError, for example if no sync was started with `usersAndRoles.copy` true.
        """
        self._gate.await_startup()
        runner = self._run.runner
        with self._gate.while_active(), answered_soon():
            found = None if runner is None else runner.principals.compare()
        if found is None:
            raise not_requested()
        return principals_report(found)

    def reset_plan(self, confirm: str) -> dict[str, Any]:
        """Return the effects that `Service.reset` would have, in the form of `reset_report`.

        `confirm` must be the name of the sync's destination. Raises OperationError.
        """
        with self._gate.command(), impatient(PATIENCE):
            return reset_report(*self._run.runner_to_reset(confirm).resettable())

    def report(self) -> dict[str, Any]:
        """Return the report of the sync, in the form of `reports.report`.

        The report names saved data that cannot be read. The journal is saved first if possible, so that the report
        includes the newest warnings. Raises OperationError: InvalidState if there is no sync or the process is not
        initialized in time, NotActive if this process is a standby.
        """
        self._gate.await_startup()
        with self._gate.while_active():
            self._keep_journal()
            sync, runner = self._take(), self._run.runner
            if sync.record is None or runner is None:
                raise OperationError(
                    errors.INVALID_STATE,
                    f"There is no sync to report on; the state is {self._run.state.value}.",
                )
            process = self._run.process
            return report(
                Subject(
                    sync,
                    gather(self._run.metadata_of(runner), sync.record, process.stop),
                    tuple(Site.of(name, each.facts) for name, each in process.clusters.items()),
                    self._limits(),
                    __version__,
                    socket.gethostname(),
                    time(),
                )
            )

    def mismatches(
        self,
        after: str | None,
        limit: int | None,
        least_seconds: float,
        repaired_ones: bool,
        namespace: str | None = None,
    ) -> Iterator[StoredMismatch]:
        """Return an iterator over the mismatches that the verification has found; empty if there is no sync.

        Begin after the page token `after` (None: with the first mismatch), and return at most `limit` mismatches (None:
        all). Leave out documents that have differed for less than `least_seconds`. With `namespace`, return only
        mismatches of this collection of the source. With `repaired_ones`, return instead the mismatches that the sync
        has repaired or is repairing, and ignore `least_seconds` and `namespace`.

        Raises OperationError, both from this call and from the iterator.
        """
        refuse_on_standby(self._gate.standing)
        if self._run.state is State.INITIALIZING:
            raise OperationError(
                errors.INVALID_STATE,
                "The state is INITIALIZING: the process has not loaded the saved sync yet, if there is one. Repeat the "
                "request when the state has changed.",
            )
        runner = self._run.runner
        if runner is None:
            return iter(())
        metadata = self._run.metadata_of(runner)
        if repaired_ones:
            return repaired(metadata, after, limit)
        names = () if namespace is None else _names(namespace, runner.collections)
        return mismatches(metadata, after, limit, least_seconds, self._stop, names)


def _names(namespace: str, collections: Iterable[CollectionRecord]) -> set[str]:
    """Return the names under which mismatches of a collection are saved: its own, and that of its buckets (if any)."""
    stored = (each.source_storage for each in collections if str(each.source_name) == namespace)
    return {namespace, *map(str, stored)}
