"""What a check has to know of the change events of one cluster, whoever reads them."""

from __future__ import annotations

from typing import Protocol

from bson.timestamp import Timestamp

from verifier.cluster.times import Position
from verifier.compare.check_progress import Changes


class ChangeSource(Protocol):
    """Notes what changed, to be looked at again."""

    @property
    def newest(self) -> Timestamp | None:
        """A time of the cluster: who reads at or after it sees all changes that are noted by now. None at first."""

    @property
    def position(self) -> Position:
        """Up to where all that changed is noted."""

    @property
    def drained(self) -> bool:
        """Whether all is noted up to the end that the record of the check names."""

    def changes(self) -> Changes:
        """What is told of it."""
