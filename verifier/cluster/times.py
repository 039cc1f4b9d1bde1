"""Cluster times and resume tokens. The functions here have no side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

# The hexadecimal digits of a token that give its type; the time and the version come before them. The token of a
# high-water mark has the type 0, which is encoded as 29.
_TOKEN_TYPE = slice(22, 24)
_HIGH_WATER_MARK = "29"
_LAST_INCREMENT = (1 << 32) - 1


@dataclass(frozen=True)
class Position:
    """A position in a change stream: a resume token, and its cluster time.

    All events with an earlier cluster time come before the position. The token is empty if only the time is known; see
    `position_after`.
    """

    token: dict[str, Any]
    time: Timestamp

    def is_past(self, time: Timestamp) -> bool:
        """Return whether the position is later than the cluster time `time`: all events up to then come before it.

        A position at `time` itself is not enough: all events of a transaction have the same time, and a page may end
        between them.
        """
        return self.time > time


def token_time(token: dict[str, Any]) -> Timestamp:
    """Return the cluster time in a resume token.

    A token is a KeyString (see the server's `ResumeToken`). After the first byte, 0x82, four bytes are the seconds, and
    four bytes the increment.
    """
    data = token["_data"]
    return Timestamp(int(data[2:10], 16), int(data[10:18], 16))


def position_at(token: dict[str, Any]) -> Position:
    return Position(token, token_time(token))


def position_after(time: Timestamp) -> Position:
    """Return the position after all events up to the cluster time `time`, which must not be in the future."""
    return Position({}, time)


def passed_time(position: Position) -> Timestamp:
    """Return the latest cluster time that an event before the position can have.

    This is the time of the position, unless its token is a high-water mark. A high-water mark is the token of a cluster
    time, not of an event, and comes before all events of that time.
    """
    time = position.time
    is_mark = position.token.get("_data", "")[_TOKEN_TYPE] == _HIGH_WATER_MARK
    return Timestamp(time.time, time.inc - 1) if is_mark and time.inc else time


def next_time(time: Timestamp) -> Timestamp:
    """Return the earliest cluster time after `time`."""
    return Timestamp(time.time, time.inc + 1)


def end_of_second(time: Timestamp, later: int) -> Timestamp:
    """Return the last cluster time in the second that is `later` seconds after that of `time`; 0 is the same second."""
    return Timestamp(time.time + later, _LAST_INCREMENT)


def seconds_between(earlier: Timestamp, later: Timestamp) -> int:
    """Return the seconds from `earlier` to `later`; 0 if `later` is not later."""
    return max(0, later.time - earlier.time)
