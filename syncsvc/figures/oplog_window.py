"""Estimates how much longer the source's oplog holds the entries that a sync needs.

A full oplog drops its oldest entries in large pieces, so the time of its oldest entry cannot be extrapolated. This
module counts bytes instead: how much can be written before the needed entry is dropped, and how fast the source writes.
The functions here have no side effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bson.timestamp import Timestamp

from syncsvc.figures.headroom import SAFE_AGAIN, SHORT, is_short
from syncsvc.figures.trends import in_words
from syncsvc.source.oplog import Oplog
from verifier.cluster.times import seconds_between

# The oplog counts as full from this share of its limit on, because it drops up to a tenth of its entries at once.
_FULL = 0.9
# For how long a copy must be observed before its end is estimated, in seconds.
_LEAST_COPYING = 60.0


@dataclass(frozen=True)
class Look:
    """An observation of the oplog at the time `at`, in seconds of the monotonic clock.

    `copied` is the number of bytes that the sync had copied by then; None if no copy was running.
    """

    at: float
    oplog: Oplog
    copied: int | None = None


def is_lost(oplog: Oplog, needed: Timestamp) -> bool:
    """Return whether the oplog no longer reaches back to the time `needed`, so that no change stream can resume there.

    If the oldest entry is exactly the one at `needed`, a change stream can still resume.
    """
    return oplog.oldest > needed


def seconds_left(looks: Sequence[Look], needed: Timestamp) -> float | None:
    """Return for how many more seconds the oplog keeps the entries after the time `needed`, at the current write rate.

    `looks` are the observations of the last minutes, oldest first. Return infinity if nothing is written, and None if
    the rate is unknown.
    """
    oplog = looks[-1].oplog
    speed = _bytes_a_second(looks)
    if speed is None:
        return None
    room = max(0, oplog.limit - oplog.size) + oplog.size * _share_before(oplog, needed)
    return room / speed if speed > 0 else math.inf


def span_when_full(oplog: Oplog) -> float | None:
    """Return how many seconds of writes the full oplog holds, at the rate of its current contents; None if unknown."""
    span = seconds_between(oplog.oldest, oplog.newest)
    return span * max(1.0, oplog.limit / oplog.size) if span and oplog.size else None


def _share_before(oplog: Oplog, needed: Timestamp) -> float:
    """Return the share of the oplog that is older than `needed`, assuming a constant write rate."""
    span = seconds_between(oplog.oldest, oplog.newest)
    return min(1.0, seconds_between(oplog.oldest, needed) / span) if span else 0.0


def _bytes_a_second(looks: Sequence[Look]) -> float | None:
    """Return how many bytes per second were written to the oplog during the observations; None if unknown.

    For a full oplog, return at least the average rate over its whole content.
    """
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
    """Return the estimated remaining seconds of the copy; None if they are unknown, or if no copy is running.

    `looks` are the observations of the last minutes, oldest first. `total` is the size of all data to copy, in bytes;
    None if unknown, or if no copy is running.
    """
    seen = [(look.at, look.copied) for look in looks if look.copied is not None]
    if total is None or not seen:
        return None
    (began, before), (now, copied) = seen[0], seen[-1]
    if now - began < _LEAST_COPYING or copied <= before:
        return None
    return max(0, total - copied) * (now - began) / (copied - before)


def warning(left: float, copy_left: float | None, warned: bool) -> str | None:
    """Return the reason why the oplog is too short for the sync, as the end of a warning; None if it is long enough.

    `left` is the time until the oplog drops entries that the sync needs, and `copy_left` the remaining time of the copy
    (None if unknown), in seconds. `warned` is whether the warning is already active. If so, `left` must be longer by a
    margin before the warning ends, so that the warning does not flap.
    """
    if is_short(left, warned):
        return f"at the current write rate, in {in_words(left)} the oplog begins to drop entries that this sync needs."
    if copy_left is not None and left < copy_left * (SAFE_AGAIN / SHORT if warned else 1):
        return (
            f"at the current write rate, in {in_words(left)} the oplog begins to drop entries that this sync needs, "
            f"but the copy ends in {in_words(copy_left)}."
        )
    return None
