"""The progress and the result of a check, as frozen dataclasses.

A check compares in generations. Generation 0 compares everything once; each later generation compares the documents
that changed or differed, and the definitions that differed. The first one after the end of user writes compares all
definitions and numbers of documents again.
"""

from __future__ import annotations

from collections import Counter
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
    """The outcome of a check: PASSED without mismatches, FAILED with mismatches.

    INCOMPLETE means that an error ended the check before everything was compared, so the clusters may differ.
    """

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True)
class Verdict:
    """The result of a check that has ended: its outcome, and the reasons for it (none if the check passed).

    `error` is the name of the error that made the check incomplete; None if the check passed or failed.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class TaskCounts:
    """The numbers of tasks of the current generation, by status.

    A task compares definitions, documents, or numbers of documents.
    """

    added: int = 0
    processing: int = 0
    completed: int = 0
    # Tasks that found a difference; after an incomplete check, all tasks that are not completed. The two counts below
    # are parts of this one.
    failed: int = 0
    # Tasks that found a difference in a definition or a number of documents.
    metadata_mismatch: int = 0
    # Tasks whose differences the next generation compares again.
    recheck: int = 0

    @property
    def total(self) -> int:
        return self.added + self.processing + self.completed + self.failed


@dataclass(frozen=True)
class Amounts:
    """The numbers of documents and bytes that a generation has read from the source and compared.

    `total_documents` and `total_size` estimate the amounts to compare; None if unknown. `namespaces` is the number of
    collections whose documents are compared, or will be.
    """

    documents: int = 0
    total_documents: int | None = None
    size: int = 0
    total_size: int | None = None
    namespaces: int = 0


@dataclass(frozen=True)
class NamespaceProgress:
    """The progress of one namespace in one generation. Sizes are in bytes.

    `total_documents` and `total_size` estimate the amounts to compare; None if unknown.
    """

    documents: int = 0
    total_documents: int | None = None
    size: int = 0
    total_size: int | None = None
    tasks: int = 0
    tasks_done: int = 0


@dataclass(frozen=True)
class Changes:
    """The statistics of the change events of one cluster since the check began. None means unknown."""

    # The number of events by operation, such as "insert"; empty if the check does not count the events itself.
    seen: Mapping[str, int] = field(default_factory=dict)
    # Averaged over the last minute.
    per_second: float | None = None
    # How far the reader of the change stream is behind the cluster.
    lag_seconds: int | None = None
    # The documents of all changes up to this cluster time have been compared again.
    rechecked: Timestamp | None = None
    # How far `rechecked` is behind the cluster.
    recheck_lag_seconds: int | None = None


# How long a document must differ to count as a lasting mismatch, in seconds.
LASTING = 60


@dataclass(frozen=True)
class MismatchCounts:
    """The numbers of mismatches that a generation has found."""

    # The mismatches of documents, by kind of difference.
    documents: Mapping[Difference, int] = field(default_factory=dict)
    # The same mismatches of documents, by namespace.
    namespaces: Mapping[Namespace, int] = field(default_factory=dict)
    # The mismatches of definitions and of numbers of documents.
    definitions: int = 0
    # The documents that have differed for at least LASTING seconds. A change is usually synced in less time.
    lasting: int = 0

    @property
    def are_some(self) -> bool:
        return bool(self.documents or self.definitions)

    @property
    def by_owner(self) -> Mapping[Namespace, int]:
        """Return the numbers of document mismatches by collection.

        Mismatches in a buckets collection count for its time-series collection.
        """
        found: Counter[Namespace] = Counter()
        for name, count in self.namespaces.items():
            found[name.owner] += count
        return found

    def plus(self, other: MismatchCounts) -> MismatchCounts:
        documents = dict(Counter(self.documents) + Counter(other.documents))
        namespaces = dict(Counter(self.namespaces) + Counter(other.namespaces))
        definitions, lasting = self.definitions + other.definitions, self.lasting + other.lasting
        return MismatchCounts(documents, namespaces, definitions, lasting)


@dataclass(frozen=True)
class CheckProgress:
    """The progress of a check at one moment. Sizes are in bytes, rates are averages over the last minute.

    A value that is None is unknown, or does not exist yet.
    """

    phase: Phase = Phase.IDLE
    generation: int | None = None
    # When the check began and ended, in UNIX seconds.
    started: float | None = None
    ended: float | None = None
    # The figures of the current or last generation.
    tasks: TaskCounts = TaskCounts()
    amounts: Amounts = Amounts()
    # The amounts of generation 0, once it is complete, and when it ended, in UNIX seconds.
    first: Amounts | None = None
    first_ended: float | None = None
    documents_per_second: float | None = None
    size_per_second: float | None = None
    # The durations of the most recent generations after generation 0.
    recent_recheck_seconds: tuple[float, ...] = ()
    # The number of documents that the finished generations after generation 0 have compared.
    rechecked: int = 0
    source: Changes = Changes()
    destination: Changes = Changes()
    # The mismatches of the newest complete generation. Until generation 0 is complete, these are its mismatches so far.
    mismatches: MismatchCounts = MismatchCounts()
    # The progress of generation 0 in each namespace.
    namespaces: Mapping[Namespace, NamespaceProgress] = field(default_factory=dict)
    # Whether the check knows that users no longer write.
    writes_off: bool = False
    # Sentences that qualify the result, such as what was not compared, and why.
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None

    @property
    def listed(self) -> list[Namespace]:
        """Return the namespaces to list: those with progress and those with mismatches of documents, sorted by name."""
        return sorted({*self.namespaces, *self.mismatches.by_owner}, key=str)
