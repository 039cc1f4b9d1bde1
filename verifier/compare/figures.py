"""The progress of a check, combined from the objects that run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bson.timestamp import Timestamp

from verifier.cluster.namespace import Namespace
from verifier.cluster.times import seconds_between
from verifier.compare.amounts import Tally
from verifier.compare.change_source import ChangeSource
from verifier.compare.check_progress import (
    Changes,
    CheckProgress,
    MismatchCounts,
    NamespaceProgress,
    Outcome,
    Phase,
    TaskCounts,
    Verdict,
)
from verifier.compare.generation import Generation
from verifier.compare.queue import counts_of
from verifier.compare.record import CheckRecord, Side
from verifier.compare.store import CheckStore
from verifier.compare.task import Task


class Figures:
    """Combines the progress of a check from its saved record and the objects that run it.

    Only one thread at a time may set the attributes; any thread may read the progress.
    """

    def __init__(self, store: CheckStore) -> None:
        self._store = store
        self.sources: dict[Side, ChangeSource] = {}
        self.generation: Generation | None = None
        # The cluster times up to which all changes were compared again; empty until this process knows them.
        self.rechecked: Mapping[Side, Timestamp] = {}
        # The progress of generation 0, by namespace.
        self.namespaces: Mapping[Namespace, NamespaceProgress] = {}
        # The verdict with which this process ended the check after an error, if it did. It is not always saved.
        self.given_up: Verdict | None = None
        # The task counts and amounts that earlier processes saved for the current generation. They are used until this
        # process runs a generation.
        self._tasks, self._tally = TaskCounts(), Tally()
        # The mismatches that earlier processes saved in the newest complete generation, or in generation 0 so far.
        self._recalled = MismatchCounts()
        # The mismatches of the newest complete generation; None until this process knows that one is complete.
        self._found: MismatchCounts | None = None

    @property
    def mismatches(self) -> MismatchCounts:
        """Return the numbers of mismatches in the newest complete generation.

        Until generation 0 is complete, return the numbers that earlier processes have saved.
        """
        return self._recalled if self._found is None else self._found

    @mismatches.setter
    def mismatches(self, found: MismatchCounts) -> None:
        self._found = found

    def between_generations(self) -> None:
        """Reset the task counts, amounts and rates until the next generation begins."""
        self.generation, self._tasks, self._tally = None, TaskCounts(), Tally()

    def recall(self) -> None:
        """Load the figures that earlier processes have saved. Raises the driver's errors, and `Cancelled`."""
        self._recalled = self._store.mismatch_counts()
        tally = Tally()

        def recalled() -> Iterator[Task]:
            for task in self._store.tasks():
                tally.plan(task)
                tally.recall(task)
                yield task

        self._tasks, self._tally = counts_of(recalled()), tally
        is_first = self._store.record.generation == 0
        self.namespaces = tally.namespaces if is_first else self._store.compared()

    def progress(self) -> CheckProgress:
        """Return the current progress, without access to a cluster."""
        record = self._store.record
        verdict = self.given_up or record.verdict
        generation = self.generation
        tasks = self._tasks if generation is None else generation.queue.counts
        progress = CheckProgress(
            phase=_phase(record, verdict),
            generation=record.generation,
            started=record.started,
            ended=record.ended,
            tasks=_shown_tasks(tasks, verdict),
            first=record.first,
            first_ended=record.first_ended,
            recent_recheck_seconds=record.recheck_seconds,
            rechecked=record.rechecked,
            source=self._changes(Side.SOURCE),
            destination=self._changes(Side.DESTINATION),
            amounts=self._tally.amounts,
            mismatches=self.mismatches,
            namespaces=self.namespaces,
            writes_off=record.writes_off,
            notes=record.notes,
            verdict=verdict,
        )
        return progress if generation is None else self._with_live(progress, generation)

    def _with_live(self, progress: CheckProgress, generation: Generation) -> CheckProgress:
        """Return a copy of `progress` with the amounts and rates of `generation`.

        `generation` is the current generation, or the last generation of a check that has ended. Until generation 0 is
        complete, the copy also contains its mismatches so far, and its progress by namespace.
        """
        tally = generation.tally
        first = progress.generation == 0 and self._found is None
        running = progress.phase is not Phase.IDLE
        return replace(
            progress,
            amounts=tally.amounts,
            documents_per_second=tally.documents_per_second if running else None,
            size_per_second=tally.size_per_second if running else None,
            # The mismatches of a task that an earlier process left unfinished may count twice until generation 0 is
            # complete.
            mismatches=self._recalled.plus(tally.mismatches) if first else progress.mismatches,
            namespaces=tally.namespaces if first else progress.namespaces,
        )

    def _changes(self, side: Side) -> Changes:
        record, source = self._store.record.side(side), self.sources.get(side)
        rechecked = self.rechecked.get(side, record.rechecked)
        if source is None:
            return Changes(seen=record.seen, rechecked=rechecked)
        newest = source.newest
        lag = None if rechecked is None or newest is None else seconds_between(rechecked, newest)
        return replace(source.changes(), rechecked=rechecked, recheck_lag_seconds=lag)


def _phase(record: CheckRecord, verdict: Verdict | None) -> Phase:
    if verdict is not None:
        return Phase.IDLE
    return Phase.RECHECK if record.generation else Phase.CHECK


def _shown_tasks(counts: TaskCounts, verdict: Verdict | None) -> TaskCounts:
    """Return the counts of tasks as they are shown to users.

    While the check runs, all failed tasks also count as `recheck`. If the check ended incomplete, all tasks that are
    not complete count as failed. If there is no such task, one task counts as failed nevertheless.
    """
    if verdict is None:
        return replace(counts, recheck=counts.failed)
    if verdict.outcome is not Outcome.INCOMPLETE:
        return counts
    failed = max(1, counts.total - counts.completed)
    return replace(counts, added=0, processing=0, failed=failed)
