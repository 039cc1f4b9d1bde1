"""Describes the history of a sync from its saved records: phases, commits and a timeline.

Times are in UNIX seconds, by the clocks of the processes that saved them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from syncsvc.saved.journal import Entry, Journal, Kind, Sender
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase, State

Span = tuple[float, float]

_IDLE = frozenset({State.PAUSED.value, State.FAILED.value})
# The states in which the duration of the last phase is not measured.
_ENDED = frozenset({State.COMMITTED, State.RESETTING})


@dataclass(frozen=True)
class PhaseSpan:
    """A phase of the sync. `ended` is None for the current phase.

    `seconds` is the duration of the phase so far; 0 for the last phase of a sync that is committed or being reset.
    During `idle` of these seconds, the sync was not running.
    """

    phase: Phase
    began: float
    ended: float | None
    seconds: float
    idle: float

    @property
    def active(self) -> float:
        return self.seconds - self.idle


class Outcome(Enum):
    """The outcomes of a requested commit."""

    COMMITTED = "committed"
    RUNNING = "in progress"
    FAILED = "failed"
    RESET = "given up by a reset"


@dataclass(frozen=True)
class Commit:
    """A requested commit. `direction` is the number of reversals of the sync before the request.

    `writable` is the time from which users could write to the destination. `committed` is the time at which the commit
    was complete. Each is None until then. `withdrawn` is how often the cut-over was undone: because users wrote or may
    have written to the source, or because the sync was resumed after a failure in the cut-over. `resumed` is whether a
    resume has withdrawn the whole commit after a failure, so that it must be requested again. `sender` is None if the
    sender is not known.
    """

    requested: float
    sender: Sender | None
    direction: int
    outcome: Outcome = Outcome.RUNNING
    writable: float | None = None
    committed: float | None = None
    withdrawn: int = 0
    resumed: bool = False

    @property
    def downtime(self) -> float | None:
        """Return the seconds from the request until users could write to the destination; None if they cannot yet."""
        return None if self.writable is None else max(0.0, self.writable - self.requested)


def idle_spans(journal: Journal, now: float) -> list[Span]:
    """Return the periods in which the sync was paused, had failed, or had no running process.

    Each period is a pair of a begin and an end. The pairs are sorted, and do not overlap. `now` is the current time.
    """
    spans = [(each.at - each.gap, each.at) for each in journal.processes if each.gap]
    began: float | None = None
    for entry in journal.entries:
        if entry.what is not Kind.STATE:
            continue
        if entry.text in _IDLE:
            began = entry.at if began is None else began
        elif began is not None:
            spans.append((began, entry.at))
            began = None
    if began is not None:
        spans.append((began, now))
    return [*_merged(sorted(spans))]


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    whole: Span | None = None
    for span in spans:
        if whole is not None and span[0] <= whole[1]:
            whole = (whole[0], max(whole[1], span[1]))
            continue
        if whole is not None:
            yield whole
        whole = span
    if whole is not None:
        yield whole


def phase_spans(record: RunRecord, now: float) -> list[PhaseSpan]:
    """Return the saved phases of the sync, the oldest first. Early phases may be missing."""
    idle = idle_spans(record.journal, now)
    spans = []
    for number, begin in enumerate(record.phases, 1):
        end = record.phases[number].at if number < len(record.phases) else None
        until = begin.at if end is None and record.state in _ENDED else now
        # The clocks of two hosts may differ.
        until = max(begin.at, until if end is None else end)
        overlap = sum(max(0.0, min(until, high) - max(begin.at, low)) for low, high in idle)
        spans.append(PhaseSpan(begin.phase, begin.at, end, until - begin.at, overlap))
    return spans


def commits(record: RunRecord) -> list[Commit]:
    """Return the requested commits that the journal of a run record contains, the oldest first."""
    found: list[Commit] = []
    # The journal may have lost the oldest commands, so count the reversals backwards from the newest.
    entries = record.journal.entries
    direction = record.reversals - sum(map(_reverses, entries))
    for entry in entries:
        if entry.what is Kind.COMMAND and entry.text == "commit":
            found.append(Commit(entry.at, entry.sender, direction))
        elif _reverses(entry):
            direction += 1
        elif found:
            found[-1] = _after(found[-1], entry)
    return found


def _after(commit: Commit, entry: Entry) -> Commit:
    """Return the commit, updated with the next entry of the journal.

    A commit that is complete, or was given up by a reset, is returned unchanged. A failed commit is updated, because a
    resume can continue it.
    """
    if commit.committed is not None or commit.outcome is Outcome.RESET:
        return commit
    if entry.what is Kind.WRITABLE:
        return replace(commit, writable=entry.at)
    if entry.what is Kind.WITHDRAWN:
        return replace(commit, withdrawn=commit.withdrawn + 1)
    if entry.what is not Kind.STATE:
        return commit
    if entry.text == State.COMMITTED.value:
        return replace(commit, committed=entry.at, outcome=Outcome.COMMITTED)
    if entry.text == State.COMMITTING.value:
        return replace(commit, outcome=Outcome.RUNNING)
    if entry.text == State.FAILED.value:
        return replace(commit, outcome=Outcome.FAILED)
    if entry.text == State.RUNNING.value:
        return replace(commit, resumed=True)
    if entry.text == State.RESETTING.value and not commit.resumed:
        return replace(commit, outcome=Outcome.RESET)
    return commit


def _reverses(entry: Entry) -> bool:
    return entry.what is Kind.COMMAND and entry.text == "reverse"


@dataclass(frozen=True)
class Moment:
    """An entry of the timeline, at the time `at` in UNIX seconds. `text` describes the event.

    `instance` is the ID of the instance whose run record contains the entry. `what` is the kind of the event: the value
    of a journal `Kind`, "process", "phase" or "reversed". Only commands have a sender.
    """

    at: float
    instance: str
    what: str
    text: str = ""
    sender: Sender | None = None


def timeline(records: Sequence[RunRecord]) -> list[Moment]:
    """Return the timeline of all instances: starts of processes and phases, journal entries and reversals.

    The oldest entry is first.
    """
    return sorted(
        (each for record in records for each in _moments(record)), key=lambda each: each.at
    )


def _moments(record: RunRecord) -> Iterator[Moment]:
    name = record.instance
    for process in record.journal.processes:
        text = f"syncsvc {process.version} on {process.host}"
        if process.gap is not None:
            ran = f"the instance {name}" if record.instances else "the sync"
            text += f", after {process.gap:.0f} s in which no process ran {ran}"
        yield Moment(process.at, name, "process", text)
    for begin in record.phases:
        yield Moment(begin.at, name, "phase", begin.phase.value)
    for each in record.journal.entries:
        yield Moment(each.at, name, each.what.value, each.text, each.sender)
    for direction in record.journal.directions:
        text = f"{direction.destination} to {direction.source}"
        yield Moment(direction.ended, name, "reversed", text)
