"""How long the source's oplog will still hold what a sync needs. Pure.

The oplog drops its oldest entries when it is full, in large pieces: how fast its beginning moves says little. So this
counts bytes: what may still be written before the needed entry is dropped, and how fast the source writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bson.timestamp import Timestamp

from syncsvc.figures.trends import LEAST_TOLD, in_words
from syncsvc.source.oplog import Oplog
from verifier.cluster.times import seconds_between

# From how much of its limit on an oplog counts as full: it drops up to a tenth of itself at once.
_FULL = 0.9
# A warning that began ends when this many seconds are left, so that it does not come and go.
_SAFE_AGAIN = LEAST_TOLD * 4 / 3
# How long the copy must have been seen before its end is guessed, in seconds.
_LEAST_COPYING = 60.0


@dataclass(frozen=True)
class Look:
    """The oplog at a moment of the monotonic clock, and during the copy how many bytes were copied by then."""

    at: float
    oplog: Oplog
    copied: int | None = None


def is_lost(oplog: Oplog, needed: Timestamp) -> bool:
    """Whether a change stream can no longer go on after that time. An entry of that very time proves that it can."""
    return oplog.oldest > needed


def seconds_left(looks: Sequence[Look], needed: Timestamp) -> float | None:
    """For how long the oplog will hold what came after `needed`, at the rate of writes; None where that is unknown."""
    oplog = looks[-1].oplog
    speed = _bytes_a_second(looks)
    if speed is None:
        return None
    room = max(0, oplog.limit - oplog.size) + oplog.size * _share_before(oplog, needed)
    return room / speed if speed > 0 else math.inf


def span_when_full(oplog: Oplog) -> float | None:
    """For how long it holds what is written, in seconds, at the rate of what is in it; None where that is unknown."""
    span = seconds_between(oplog.oldest, oplog.newest)
    return span * max(1.0, oplog.limit / oplog.size) if span and oplog.size else None


def _share_before(oplog: Oplog, needed: Timestamp) -> float:
    """Which part of the oplog is older than that, as if it had been written evenly."""
    span = seconds_between(oplog.oldest, oplog.newest)
    return min(1.0, seconds_between(oplog.oldest, needed) / span) if span else 0.0


def _bytes_a_second(looks: Sequence[Look]) -> float | None:
    """The rate of the last minutes; where the whole oplog was written faster, and is full, the rate of all of it."""
    kept = [(a, b) for a, b in pairwise(looks) if a.oplog.oldest == b.oplog.oldest]
    elapsed = sum(b.at - a.at for a, b in kept)
    grown = sum(b.oplog.size - a.oplog.size for a, b in kept)
    lately = max(0.0, grown / elapsed) if elapsed else None
    oplog = looks[-1].oplog
    if oplog.size < _FULL * oplog.limit:
        return lately
    overall = oplog.size / max(1, seconds_between(oplog.oldest, oplog.newest))
    return max(overall, lately or 0.0)


def copy_seconds_left(looks: Sequence[Look], total: int | None) -> float | None:
    """How long the copy will still take; None where that is unknown, or there is none."""
    seen = [(look.at, look.copied) for look in looks if look.copied is not None]
    if total is None or not seen:
        return None
    (began, before), (now, copied) = seen[0], seen[-1]
    if now - began < _LEAST_COPYING or copied <= before:
        return None
    return max(0, total - copied) * (now - began) / (copied - before)


def warning(left: float, copy_left: float | None, warned: bool) -> str | None:
    """What to tell of an oplog that will not do; None where it will. `warned` is whether it did not before."""
    if left < (_SAFE_AGAIN if warned else LEAST_TOLD):
        return f"it holds what this sync needs for {in_words(left)} at the present rate of writes."
    if copy_left is not None and copy_left > left:
        return (
            f"the copy takes {in_words(copy_left)} more, and what is written meanwhile stays for {in_words(left)} "
            "at the present rate of writes."
        )
    return None
