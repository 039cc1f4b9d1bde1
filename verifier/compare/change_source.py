"""The interface through which a check follows the change events of one cluster."""

from __future__ import annotations

from typing import Protocol

from bson.timestamp import Timestamp

from verifier.cluster.times import Position
from verifier.compare.check_progress import Changes


class ChangeSource(Protocol):
    """Follows the change events of one cluster, and saves rechecks of the changed documents and collections."""

    @property
    def newest(self) -> Timestamp | None:
        """Return the newest cluster time that this reader has seen; None before it has read the first page.

        A read of the cluster at this time or later sees all changes that the reader has read.
        """

    @property
    def position(self) -> Position:
        """Return the position up to which all changes are saved as rechecks."""

    @property
    def drained(self) -> bool:
        """Return whether all changes up to the end of user writes are saved as rechecks.

        Return False while that end is unknown.
        """

    def changes(self) -> Changes:
        """Return the statistics of the change events.

        For the source of a sync, `seen` is empty: the sync reads these events for the check, and counts them itself.
        """
