"""Saves the warnings, long waits and counts of this process in the journal of the run record."""

from __future__ import annotations

import threading
from dataclasses import replace
from time import time

from syncsvc.figures.progress import Progress, ProgressSnapshot
from syncsvc.saved.journal import Counts, Journal
from syncsvc.saved.run_store import RunStore


def counts_of(snapshot: ProgressSnapshot) -> Counts:
    """Return the counts of this process for the journal.

    They are the numbers of applied change events, of applied DDL events, and of documents copied again.
    """
    return Counts(
        snapshot.events_applied, snapshot.definitions_applied, snapshot.documents_copied_again
    )


class JournalKeeper:
    """Adds the warnings, long waits and counts of this process to the saved journal. Safe to call from several threads.

    The counts are the numbers of applied change events, of applied DDL events, and of documents copied again.
    """

    def __init__(self, store: RunStore, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._keeping = threading.Lock()  # one save at a time; guards _counted
        # The counts of this process at the last save or, before the first one, when this object was made.
        self._counted = counts_of(progress.snapshot)

    def keep(self) -> None:
        """Save the warnings and long waits of this process, and the increase of its counts since the last save.

        Raises OperationError and the driver's errors.
        """
        with self._keeping:
            self._keep()

    def _keep(self) -> None:
        # Read `begun` before the snapshot: a warning that begins in between is then also saved by the next call.
        begun, snapshot = self._progress.begun, self._progress.snapshot
        waits = {each.what: each.text for each in snapshot.waits}
        warnings = {kind.value: text for kind, text in snapshot.warnings.items()}
        done = counts_of(snapshot)
        more = done.since(self._counted)

        def observed(journal: Journal) -> Journal:
            now = time()
            journal = journal.with_warnings({**begun, **waits, **warnings}, now)
            journal = journal.with_warnings({**waits, **warnings}, now)
            return replace(journal, counts=journal.counts.plus(more))

        self._store.revise(observed)
        self._counted = done
        self._progress.forget_begun(begun)
