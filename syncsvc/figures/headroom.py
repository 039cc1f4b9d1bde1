"""Decides whether change events may be slowed down: not if the source's oplog would drop them meanwhile. Pure."""

from __future__ import annotations

from syncsvc.figures.progress import SpoolFigures
from syncsvc.figures.spooling import FILLING, ROOMY, assumed_left
from syncsvc.figures.trends import SHORTEST_FORECAST, in_words

# The headroom must grow to this multiple before events are slowed down again.
_SAFE_AGAIN = 4 / 3


def danger(
    left: float | None, lag: float | None, spool: SpoolFigures | None, endangered: bool
) -> str | None:
    """Return why change events must not be slowed down; None if they may be.

    The danger is that the oplog drops events that are not applied yet or, while events are spooled, that the event
    spool gets full. `left` is in how many seconds the oplog drops events that the sync needs, and `lag` the lag in
    seconds; None if unknown. `endangered` is whether the last call found a danger, which then ends only with some
    room to spare.
    """
    if spool is not None and spool.active:
        if spool.size < (ROOMY if endangered else FILLING) * spool.limit:
            return None
        return f"the event spool holds {spool.size / 1e6:.0f} MB of {spool.limit / 1e6:.0f} MB"
    if left is None:
        left = None if lag is None else assumed_left(lag)
    if left is None or left >= SHORTEST_FORECAST * (_SAFE_AGAIN if endangered else 1):
        return None
    return f"in {in_words(left)} the oplog of the source may drop changes that are not applied yet"
