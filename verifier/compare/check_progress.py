"""The progress and the result of a check, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from bson.timestamp import Timestamp

from verifier.cluster.namespace import Namespace
from verifier.compare.mismatch import Difference


class Phase(Enum):
    """The phase of a check. IDLE: no check runs. CHECK: generation 0 runs. RECHECK: a later generation runs."""

    IDLE = "idle"
    CHECK = "check"
    RECHECK = "recheck"


class Outcome(Enum):
    """The outcome of a check. INCOMPLETE: not everything was compared, so the clusters may differ."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True)
class Verdict:
    """The result of a check that has ended: its outcome, and the reasons for it (none if the check passed).

    `error` is the name of the error that made the check incomplete; None if it passed or failed.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class TaskCounts:
    """The numbers of tasks of the current generation, by status.

    `failed` counts tasks that found a difference. `metadata_mismatch` and `recheck` count some of these again: the
    tasks that found a difference in a definition or a number of documents, and the tasks whose differences the next
    generation compares again.
    """

    added: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    metadata_mismatch: int = 0
    recheck: int = 0

    @property
    def total(self) -> int:
        return self.added + self.processing + self.completed + self.failed


@dataclass(frozen=True)
class Amounts:
    """The amounts that a generation has compared. Sizes are in bytes, of the source's documents.

    `total_documents` and `total_size` are estimates of the whole amount; None if unknown.
    """

    documents: int = 0
    total_documents: int | None = None
    size: int = 0
    total_size: int | None = None
    namespaces: int = 0


@dataclass(frozen=True)
class NamespaceProgress:
    """The progress of one namespace in one generation. Sizes are in bytes.

    `total_documents` and `total_size` are estimates of the whole amount; None if unknown.
    """

    documents: int = 0
    total_documents: int | None = None
    size: int = 0
    total_size: int | None = None
    tasks: int = 0
    tasks_done: int = 0


@dataclass(frozen=True)
class Changes:
    """The change events of one cluster since the check began.

    `seen` counts the events by operation. `per_second` is averaged over the last minute. `lag_seconds` is how far the
    reader is behind the cluster. All changes up to `rechecked` have been compared again. None means unknown.
    """

    seen: Mapping[str, int] = field(default_factory=dict)
    per_second: float | None = None
    lag_seconds: int | None = None
    rechecked: Timestamp | None = None


@dataclass(frozen=True)
class MismatchCounts:
    """The numbers of mismatches that a generation has found.

    `documents` counts the mismatches of documents by kind, and `namespaces` the same mismatches by namespace.
    `definitions` counts the mismatches of definitions and of numbers of documents.
    """

    documents: Mapping[Difference, int] = field(default_factory=dict)
    namespaces: Mapping[Namespace, int] = field(default_factory=dict)
    definitions: int = 0


@dataclass(frozen=True)
class CheckProgress:
    """A check at one moment. Sizes are in bytes, rates per second over the last minute; None means unknown.

    `started` and `ended` are UNIX seconds. `first` is the amounts of generation 0, once it is over. `rechecked` counts
    documents over all later generations. `notes` say what was not compared, and why.
    """

    phase: Phase = Phase.IDLE
    generation: int | None = None
    started: float | None = None
    ended: float | None = None
    tasks: TaskCounts = TaskCounts()
    amounts: Amounts = Amounts()
    first: Amounts | None = None
    documents_per_second: float | None = None
    size_per_second: float | None = None
    recent_recheck_seconds: tuple[float, ...] = ()
    rechecked: int = 0
    source: Changes = Changes()
    destination: Changes = Changes()
    mismatches: MismatchCounts = MismatchCounts()
    namespaces: Mapping[Namespace, NamespaceProgress] = field(default_factory=dict)
    writes_off: bool = False
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
