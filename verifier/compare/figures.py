"""The progress of a check, combined from the objects that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from verifier.cluster.namespace import Namespace
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


class Figures:
    """Combines the progress of a check from its saved record and the objects that run it.

    The thread that runs the check sets the attributes; any thread may read the progress.
    """

    def __init__(self, store: CheckStore) -> None:
        self._store = store
        self.sources: dict[Side, ChangeSource] = {}
        self.generation: Generation | None = None
        self.mismatches = MismatchCounts()
        # The namespaces of generation 0, if this process ran it.
        self.namespaces: Mapping[Namespace, NamespaceProgress] = {}
        # The verdict with which this process gave the check up; it may not be saved.
        self.given_up: Verdict | None = None
        self._tasks = TaskCounts()

    def recall(self) -> None:
        """Load the saved counts of mismatches and tasks. Raises the driver's errors."""
        self.mismatches = self._store.mismatch_counts()
        self._tasks = counts_of(self._store.tasks())

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
            recent_recheck_seconds=record.recheck_seconds,
            rechecked=record.rechecked,
            source=self._changes(Side.SOURCE),
            destination=self._changes(Side.DESTINATION),
            mismatches=self.mismatches,
            writes_off=record.writes_off,
            notes=record.notes,
            verdict=verdict,
        )
        return progress if generation is None else self._with_live(progress, generation)

    def _with_live(self, progress: CheckProgress, generation: Generation) -> CheckProgress:
        """Return a copy of `progress` with the amounts, rates and mismatches of `generation`.

        This is the current generation, or the last one of a check that has ended.
        """
        tally = generation.tally
        first = progress.generation == 0
        running = progress.phase is not Phase.IDLE
        return replace(
            progress,
            amounts=tally.amounts,
            documents_per_second=tally.documents_per_second if running else None,
            size_per_second=tally.size_per_second if running else None,
            mismatches=tally.mismatches if first else progress.mismatches,
            namespaces=tally.namespaces if first else self.namespaces,
        )

    def _changes(self, side: Side) -> Changes:
        source = self.sources.get(side)
        if source is not None:
            return source.changes()
        record = self._store.record.side(side)
        return Changes(seen=record.seen, rechecked=record.rechecked)


def _phase(record: CheckRecord, verdict: Verdict | None) -> Phase:
    if verdict is not None:
        return Phase.IDLE
    return Phase.RECHECK if record.generation else Phase.CHECK


def _shown_tasks(counts: TaskCounts, verdict: Verdict | None) -> TaskCounts:
    """Return the counts of tasks as they are shown to users.

    While the check runs, all failed tasks are also shown as to be compared again. A check that ended incomplete is
    shown without tasks left to do, and with at least one failed task.
    """
    if verdict is None:
        return replace(counts, recheck=counts.failed)
    if verdict.outcome is not Outcome.INCOMPLETE:
        return counts
    failed = max(1, counts.total - counts.completed)
    return replace(counts, added=0, processing=0, failed=failed)
