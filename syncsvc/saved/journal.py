"""The journal of an instance: the commands, states and failures of its sync, as the basis of the report.

The journal is a part of the run record, so a command and its sender are saved together with the change of the state.
A running sync saves the record every half second, so the journal must be small: every list and text in it is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from marshmallow import fields

from syncsvc.saved.stored import Stored
from verifier.cluster.facts import ClusterFacts

# The maximum numbers of entries, processes, warnings, directions, and notes of a verification; and the number of
# characters to which longer texts are cut.
MOST_ENTRIES = 200
MOST_PROCESSES = 50
MOST_WARNINGS = 40
MOST_DIRECTIONS = 21
MOST_NOTES = 20
LONGEST_TEXT = 500


class Kind(Enum):
    """The kinds of entries, with their texts.

    COMMAND: an accepted command; for a change of the limits, with the changes. STATE: the name of a new state of the
    sync. FAILURE: the name and the description of the error with which the sync failed. WITHDRAWN: the sync begins to
    undo the cut-over. WRITABLE: users may write to the destination. REPAIRED: after a round of repairs, the numbers of
    documents and definitions repaired so far in this direction. PRINCIPALS: after a copy of users and roles, the
    numbers of those copied so far in this direction.
    """

    COMMAND = "command"
    STATE = "state"
    FAILURE = "failure"
    WITHDRAWN = "commit withdrawn"
    WRITABLE = "destination writable"
    REPAIRED = "repaired"
    PRINCIPALS = "users and roles"


# The texts of the commands and states that are dropped last when the journal is full.
_ESSENTIAL = frozenset({"start", "commit", "reverse", "COMMITTED"})


@dataclass(frozen=True)
class Sender:
    """The sender of a command.

    `caller` is the name of the sender's token; None without a token. `address` is the address from which the command
    came. If the process itself sent the command because of `--desiredState`, `caller` is "desiredState" and `address`
    is None.
    """

    caller: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class Entry:
    """One event of the sync, at the time `at` in UNIX seconds. Only commands have a sender."""

    what: Kind
    at: float
    text: str = ""
    sender: Sender | None = None

    @property
    def is_essential(self) -> bool:
        return self.what is Kind.WRITABLE or self.text in _ESSENTIAL


@dataclass(frozen=True)
class Process:
    """A process that began the sync or took it over, at the time `at` in UNIX seconds.

    `gap` is the number of seconds before `at` in which no process ran this instance of the sync; None if unknown, or if
    the sync was not active.
    """

    at: float
    version: str
    host: str
    gap: float | None = None


@dataclass(frozen=True)
class Site:
    """A cluster as it was when the sync was started. `shards` is the number of its shards; 0 if it has none."""

    name: str
    address: str
    topology: str
    version: str
    shards: int = 0

    @classmethod
    def of(cls, name: str, facts: ClusterFacts) -> Site:
        topology, version = facts.topology.value, facts.dotted_version
        return cls(name, facts.address, topology, version, len(facts.shards))


@dataclass(frozen=True)
class Warned:
    """All warnings of one kind, or all long waits for the same thing; `key` names the kind or the thing.

    `text`, `began` and `ended` describe the newest warning; `ended` is None while it is active. `first` is the time of
    the first warning, and `times` the number of warnings. `seconds` is the total duration of the ended warnings. Times
    are in UNIX seconds.
    """

    key: str
    text: str
    first: float
    began: float
    ended: float | None = None
    times: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Counts:
    """Totals of this instance since the start of the sync.

    `events` counts the change events of documents that this instance applied. `definitions` counts the applied DDL
    events, and the applied changes of definitions that have no event; if several instances share the sync, only one of
    them counts these. `copied_again` counts the documents that the copy read although the destination already had
    them. An event that is applied again after a crash counts twice.
    """

    events: int = 0
    definitions: int = 0
    copied_again: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(
            self.events + other.events,
            self.definitions + other.definitions,
            self.copied_again + other.copied_again,
        )

    def since(self, earlier: Counts) -> Counts:
        """Return the increase of each total since `earlier`.

        A total that is lower than before has been counted again from 0, so its whole value is the increase.
        """
        pairs = (
            (self.events, earlier.events),
            (self.definitions, earlier.definitions),
            (self.copied_again, earlier.copied_again),
        )
        return Counts(*(now - then if now >= then else now for now, then in pairs))


@dataclass(frozen=True)
class Verified:
    """The results of a verification, which has passed if they are in a journal. Times are in UNIX seconds.

    `documents`, `size` (in bytes) and `namespaces` are the amounts of the first generation, which compares everything.
    `rechecked` is the number of comparisons of documents in later generations. `generations` is the number of all
    generations. `notes` say what was not compared, and why. `ended` is None while the verification runs.
    """

    started: float
    ended: float | None
    generations: int
    documents: int
    size: int
    namespaces: int
    rechecked: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Direction:
    """A direction in which the sync ran until a reversal. `ended` is the time of the reversal, in UNIX seconds.

    `counts` are the totals since the start of the sync, so they include earlier directions. `verified` is the last
    passed verification in this direction; None if none has passed. The numbers of repairs are those of this direction.
    """

    source: str
    destination: str
    ended: float
    counts: Counts = Counts()
    verified: Verified | None = None
    repaired_documents: int = 0
    repaired_definitions: int = 0


@dataclass(frozen=True)
class Journal:
    """The commands, states, failures, warnings and counts of one instance, as saved in its run record.

    `omitted` is the number of entries that were dropped because the journal was full. `saved_at` is the time of the
    last save of the run record, in UNIX seconds; None if an older version saved the record.
    """

    sites: tuple[Site, ...] = ()
    processes: tuple[Process, ...] = ()
    entries: tuple[Entry, ...] = ()
    omitted: int = 0
    warnings: tuple[Warned, ...] = ()
    counts: Counts = Counts()
    directions: tuple[Direction, ...] = ()
    # The last passed verification of the current direction; None if none has passed.
    verified: Verified | None = None
    saved_at: float | None = None

    def with_entries(self, *entries: Entry) -> Journal:
        """Return the journal with more entries. Long texts are cut.

        If the journal is full, the oldest entries are dropped, but essential ones only if there are no others.
        """
        kept = [*self.entries, *(replace(each, text=each.text[:LONGEST_TEXT]) for each in entries)]
        excess = max(0, len(kept) - MOST_ENTRIES)
        for _ in range(excess):
            oldest = next((n for n, each in enumerate(kept) if not each.is_essential), 0)
            del kept[oldest]
        return replace(self, entries=tuple(kept), omitted=self.omitted + excess)

    def with_process(self, process: Process) -> Journal:
        # Always keep the first process, because it began the sync.
        first, others = self.processes[:1], (*self.processes[1:], process)
        kept = (*first, *others[-(MOST_PROCESSES - 1) :]) if first else (process,)
        return replace(self, processes=kept)

    def with_direction(self, direction: Direction) -> Journal:
        """Return the journal after a reversal: with the ended `direction`, and `verified` cleared for the new one.

        Only the last MOST_DIRECTIONS directions are kept.
        """
        directions = (*self.directions, direction)[-MOST_DIRECTIONS:]
        return replace(self, directions=directions, verified=None)

    def with_warnings(self, active: Mapping[str, str], now: float) -> Journal:
        """Return the journal with its warnings updated to those that are active `now`.

        `active` maps the key of each active warning to its text. Keys and texts are shortened, because they may quote a
        long error. If there are too many warnings, the warnings that ended first are dropped.
        """
        active = {key[:LONGEST_TEXT]: text for key, text in active.items()}
        known = {each.key: each for each in self.warnings}
        changed = {key: _observed(each, active.get(key), now) for key, each in known.items()}
        new = {
            key: Warned(key, text[:LONGEST_TEXT], now, now)
            for key, text in active.items()
            if key not in known
        }
        kept = [*changed.values(), *new.values()]
        while len(kept) > MOST_WARNINGS:
            kept.remove(min(kept, key=_kept_until))
        return replace(self, warnings=tuple(kept))


def _kept_until(warned: Warned) -> float:
    """Return the sort key of a warning. The warning with the lowest key is dropped first: the one that ended first."""
    return math.inf if warned.ended is None else warned.ended


def _observed(warned: Warned, text: str | None, now: float) -> Warned:
    """Return the warning, updated with its current text; `text` is None if the warning is not active."""
    if text is None and warned.ended is None:
        # The clock may have been set back.
        seconds = warned.seconds + max(0.0, now - warned.began)
        return replace(warned, ended=now, seconds=seconds)
    if text is None:
        return warned
    newest = replace(warned, text=text[:LONGEST_TEXT])
    if warned.ended is None:
        return newest
    return replace(newest, began=now, ended=None, times=warned.times + 1)


class _StoredSender(Stored):
    kind = Sender

    caller = fields.String(allow_none=True)
    address = fields.String(allow_none=True)


class _StoredEntry(Stored):
    kind = Entry

    what = fields.Enum(Kind, by_value=True, required=True)
    at = fields.Float(required=True)
    text = fields.String()
    sender = fields.Nested(_StoredSender, allow_none=True)


class _StoredProcess(Stored):
    kind = Process

    at = fields.Float(required=True)
    version = fields.String(required=True)
    host = fields.String(required=True)
    gap = fields.Float(allow_none=True)


class _StoredSite(Stored):
    kind = Site

    name = fields.String(required=True)
    address = fields.String(required=True)
    topology = fields.String(required=True)
    version = fields.String(required=True)
    shards = fields.Integer()


class _StoredWarned(Stored):
    kind = Warned

    key = fields.String(required=True)
    text = fields.String(required=True)
    first = fields.Float(required=True)
    began = fields.Float(required=True)
    ended = fields.Float(allow_none=True)
    times = fields.Integer()
    seconds = fields.Float()


class _StoredCounts(Stored):
    kind = Counts

    events = fields.Integer()
    definitions = fields.Integer()
    copied_again = fields.Integer(data_key="copiedAgain")


class _StoredVerified(Stored):
    kind = Verified

    started = fields.Float(required=True)
    ended = fields.Float(allow_none=True)
    generations = fields.Integer(required=True)
    documents = fields.Integer(required=True)
    size = fields.Integer(required=True)
    namespaces = fields.Integer(required=True)
    rechecked = fields.Integer(required=True)
    notes = fields.List(fields.String())


class _StoredDirection(Stored):
    kind = Direction

    source = fields.String(required=True)
    destination = fields.String(required=True)
    ended = fields.Float(required=True)
    counts = fields.Nested(_StoredCounts)
    verified = fields.Nested(_StoredVerified, allow_none=True)
    repaired_documents = fields.Integer(data_key="repairedDocuments")
    repaired_definitions = fields.Integer(data_key="repairedDefinitions")


class StoredJournal(Stored):
    kind = Journal

    sites = fields.List(fields.Nested(_StoredSite))
    processes = fields.List(fields.Nested(_StoredProcess))
    entries = fields.List(fields.Nested(_StoredEntry))
    omitted = fields.Integer()
    warnings = fields.List(fields.Nested(_StoredWarned))
    counts = fields.Nested(_StoredCounts)
    directions = fields.List(fields.Nested(_StoredDirection))
    verified = fields.Nested(_StoredVerified, allow_none=True)
    saved_at = fields.Float(data_key="savedAt", allow_none=True)
