"""Judges the headroom: the time until the source's oplog drops changes that the sync needs.

The warnings, the web page and the rate limit of change events use the same thresholds. The functions here have no side
effects.
"""

from __future__ import annotations

from syncsvc.figures.progress import SpoolFigures
from syncsvc.figures.spooling import FILLING, ROOMY, assumed_left
from syncsvc.figures.trends import SHORTEST_FORECAST, in_words

# The thresholds of the headroom, in seconds. A headroom below SHORT is short, and counts as short until it reaches
# SAFE_AGAIN, so that a warning does not come and go. A headroom of at least AMPLE is ample.
SHORT = SHORTEST_FORECAST
SAFE_AGAIN = SHORT * 4 / 3
AMPLE = 2 * SHORT


def is_short(left: float, was_short: bool = False) -> bool:
    """Return whether a headroom of `left` seconds is short.

    `was_short` says whether it was short before. If so, the threshold is higher, so that the result does not flap.
    """
    return left < (SAFE_AGAIN if was_short else SHORT)


def danger(
    left: float | None, lag: float | None, spool: SpoolFigures | None, endangered: bool
) -> str | None:
    """Return the reason why change events must be applied without a rate limit now, as text; None if there is none.

    The reason is the danger that the oplog drops events that are not applied yet or, while events are spooled, that the
    event spool gets full. `left` is the time until the oplog drops events that the sync needs, and `lag` the lag, both
    in seconds; None if unknown. Without `left`, the time is estimated from `lag`. `endangered` is whether the previous
    call found a danger. A danger ends at a safer threshold than the one at which it begins, so that the result does not
    flap. `spool` contains the figures of the event spool; None if it is not used.
    """
    if spool is not None and spool.active:
        if spool.size < (ROOMY if endangered else FILLING) * spool.limit:
            return None
        return f"the event spool holds {spool.size / 1e6:.0f} MB of {spool.limit / 1e6:.0f} MB"
    if left is None:
        left = None if lag is None else assumed_left(lag)
    if left is None or not is_short(left, endangered):
        return None
    return f"in {in_words(left)} the oplog of the source may drop changes that are not applied yet"
