"""Finds the primaries of the replica sets behind the stand-in for mongos."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic

from bson import ObjectId

from tests.support.sharded.wire import Clock, Refused, ServerConnection, refusal

# The errors of a server that is not, or no longer, the primary.
NOT_PRIMARY = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})
_NO_PRIMARY = 133
# Like mongos, wait 20 s for a primary.
_PATIENCE = 20.0
_PAUSE = 0.05
# A stopped server accepts connections, but does not answer.
_TIMEOUT = 2.0
_NOT_ELECTED = ObjectId(bytes(12))
_pause = threading.Event()


class Primaries:
    """The primaries that were found, by the addresses of all members of their replica set. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the known primaries
        self._known: dict[tuple[str, ...], str] = {}

    def of(self, members: tuple[str, ...]) -> str:
        """Return the address of the primary of a replica set. Raises Refused if there is none for 20 seconds."""
        if len(members) == 1:
            return members[0]
        with self._lock:
            known = self._known.get(members)
        return known or self._find(members)

    def forget(self) -> None:
        """Search the primaries again before the next command, because a command failed."""
        with self._lock:
            self._known.clear()

    def _find(self, members: tuple[str, ...]) -> str:
        deadline = monotonic() + _PATIENCE
        while monotonic() < deadline:
            elected = {self._election(address): address for address in members}
            if (newest := max(elected)) is not _NOT_ELECTED:
                with self._lock:
                    self._known[members] = elected[newest]
                return elected[newest]
            _pause.wait(_PAUSE)
        raise refusal(_NO_PRIMARY, f"no primary among {', '.join(members)}")

    def _election(self, address: str) -> ObjectId:
        """Return the ID of the election of a primary, or the lowest ID if the member is none.

        A former primary that was stopped believes for a while that it still is one: its ID is lower.
        """
        with suppress(OSError, Refused):
            with ServerConnection(address, self._clock, _TIMEOUT) as connection:
                reply = connection.run({"hello": 1, "$db": "admin"})
                if reply["isWritablePrimary"]:
                    found: ObjectId = reply["electionId"]
                    return found
        return _NOT_ELECTED
