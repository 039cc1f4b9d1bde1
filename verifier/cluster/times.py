"""Cluster times and resume tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp


@dataclass(frozen=True)
class Position:
    """A position in a change stream: a resume token, and a cluster time. All events up to this time come before it.

    The token is empty if only the time is known: see `position_after`.
    """

    token: dict[str, Any]
    time: Timestamp


def token_time(token: dict[str, Any]) -> Timestamp:
    """Return the cluster time in a resume token: seconds and increment, the eight bytes after the leading 0x82.

    The format is that of the server's `ResumeToken` (a KeyString whose first value is a timestamp).
    """
    data = token["_data"]
    return Timestamp(int(data[2:10], 16), int(data[10:18], 16))


def position_at(token: dict[str, Any]) -> Position:
    return Position(token, token_time(token))


def position_after(time: Timestamp) -> Position:
    """Return the position after all events up to that cluster time, which must not be in the future."""
    return Position({}, time)


def next_time(time: Timestamp) -> Timestamp:
    """Return the earliest cluster time after `time`."""
    return Timestamp(time.time, time.inc + 1)


def seconds_between(earlier: Timestamp, later: Timestamp) -> int:
    """Return how far `later` is ahead of `earlier`, in seconds; never negative."""
    return max(0, later.time - earlier.time)
