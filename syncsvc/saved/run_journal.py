"""The entries that a change of a run record adds to its journal. The functions here have no side effects."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

from syncsvc import __version__
from syncsvc.principals.comparison import described
from syncsvc.saved.journal import Direction, Entry, Journal, Kind, Process
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import ACTIVE, Phase


def this_process(now: float, gap: float | None = None) -> Process:
    """Return the journal's entry about this process, which begins a sync or takes it over at `now` (UNIX seconds).

    `gap` is the number of seconds before `now` in which no process ran this instance of the sync; None if unknown, or
    if the sync was not active.
    """
    return Process(now, __version__, socket.gethostname(), gap)


def with_changes(old: RunRecord, new: RunRecord, now: float) -> Journal:
    """Return the journal of `new`, with entries added for the changes since `old` that a journal lists.

    `now` is the time of these changes and of the save, in UNIX seconds.
    """
    journal = new.journal
    if new.owner != old.owner:
        journal = journal.with_process(this_process(now, _gap(old, now)))
    if new.reversals > old.reversals:
        journal = journal.with_direction(_direction(old, now))
    return replace(journal.with_entries(*_entries(old, new, now)), saved_at=now)


def _gap(old: RunRecord, now: float) -> float | None:
    """Return the seconds from the last save of the record to `now`; None if unknown, or if the sync was not active."""
    saved_at = old.journal.saved_at
    return None if saved_at is None or old.state not in ACTIVE else max(0.0, now - saved_at)


def _direction(ended: RunRecord, now: float) -> Direction:
    return Direction(
        ended.source,
        ended.destination,
        now,
        ended.journal.counts,
        ended.journal.verified,
        ended.repaired_documents,
        ended.repaired_definitions,
    )


def _entries(old: RunRecord, new: RunRecord, now: float) -> Iterator[Entry]:
    if new.failure is not None and new.failure != old.failure:
        yield failure_entry(new.failure, now)
    if new.state is not old.state:
        yield Entry(Kind.STATE, now, new.state.value)
    if new.phase is Phase.WITHDRAWING and old.phase is not new.phase:
        yield Entry(Kind.WITHDRAWN, now)
    if new.can_write and not old.can_write:
        yield Entry(Kind.WRITABLE, now)
    if new.principals is not None and new.principals != old.principals:
        yield Entry(Kind.PRINCIPALS, now, described(new.principals))
    if new.repair_done > old.repair_done:
        text = f"{new.repaired_documents} documents, {new.repaired_definitions} definitions"
        yield Entry(Kind.REPAIRED, now, text)


def failure_entry(failure: Failure, now: float) -> Entry:
    return Entry(Kind.FAILURE, now, f"{failure.name}: {failure.description}")
