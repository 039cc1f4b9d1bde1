"""The objects that a check shares with its generations and with the recorders of change events."""

from __future__ import annotations

from dataclasses import dataclass

from verifier.cluster.cluster import Cluster
from verifier.compare.rechecks import Rechecks
from verifier.compare.record import Side
from verifier.compare.store import CheckStore
from verifier.compare.subject import Subject
from verifier.compare.tuning import CheckTuning
from verifier.runtime.observer import Observer


@dataclass(frozen=True)
class Sides:
    """The two clusters of a check. `workers` threads read them, in ranges of usually at most `range_bytes` bytes."""

    source: Cluster
    destination: Cluster
    workers: int
    range_bytes: int
    tuning: CheckTuning = CheckTuning()

    def of(self, side: Side) -> Cluster:
        return self.source if side is Side.SOURCE else self.destination


@dataclass(frozen=True)
class CheckContext:
    """The objects of one check that stay the same from its beginning to its verdict."""

    subject: Subject
    sides: Sides
    store: CheckStore
    rechecks: Rechecks
    observe: Observer
