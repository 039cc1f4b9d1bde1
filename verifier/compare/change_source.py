"""The interface through which a check follows the change events of one cluster."""

from __future__ import annotations

from typing import Protocol

from bson.timestamp import Timestamp

from verifier.cluster.times import Position
from verifier.compare.check_progress import Changes


class ChangeSource(Protocol):
    """A source of changes on one cluster. It saves what changed, to be compared again."""

    @property
    def newest(self) -> Timestamp | None:
        """Return a cluster time; a read at or after it sees every change noted so far. None at first."""

    @property
    def position(self) -> Position:
        """Return the position up to which all changes are saved."""

    @property
    def drained(self) -> bool:
        """Return whether all changes are saved up to the time at which user writes ended; False while it is unknown."""

    def changes(self) -> Changes:
        """Return the statistics of the change events."""
