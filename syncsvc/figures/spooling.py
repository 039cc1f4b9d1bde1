"""Decides whether change events must be spooled because the source's oplog may become too short.

The functions here have no side effects.
"""

from __future__ import annotations

from syncsvc.figures.trends import SHORTEST_FORECAST, in_words

# If it is unknown for how long the events are needed, they are spooled when the oplog will keep them for less time than
# this, in seconds.
_RESERVE = 2 * SHORTEST_FORECAST
# The oplog must keep the events longer than the sync needs them by this factor: both times are rough estimates, and the
# spooling itself takes time.
_MARGIN = 1.5
# For how long an oplog that cannot be read is assumed to keep its entries, in seconds. It usually keeps them for more
# than a day, but that is not known.
_ASSUMED_OPLOG = 2 * 3600.0
# The warning about the size of the event spool begins at the first share of the size limit, and ends below the second.
FILLING, ROOMY = 0.8, 0.7


def is_needed(left: float, rest: float | None) -> bool:
    """Return whether change events must be spooled now.

    `left` is the number of seconds until the oplog begins to drop events that the sync needs. `rest` is the number of
    seconds for which the sync still needs the oldest of these events (None if unknown).

    This function decides only when spooling begins, not when it ends. Otherwise, fluctuating estimates would start and
    stop the spooling again and again.
    """
    return left < (_RESERVE if rest is None else _MARGIN * rest)


def assumed_left(age: float) -> float:
    """Return how many more seconds an unreadable oplog is assumed to keep the oldest entry that a sync needs.

    `age` is the current age of that entry, in seconds.
    """
    return _ASSUMED_OPLOG - age


def warning(size: int, limit: int, speed: float, warned: bool) -> str | None:
    """Return the text of a warning if the event spool is nearly or completely full; None if it has enough room.

    `size` and `limit` are in bytes. `speed` is the growth of the spool, in bytes per second. `warned` is whether the
    warning is already active.
    """
    if size < (ROOMY if warned else FILLING) * limit:
        return None
    held = f"{size / 1e6:.0f} MB of {limit / 1e6:.0f} MB"
    if size >= limit:
        return (
            f"The event spool is full ({held}). If the oplog of the source drops the next change events before there "
            "is room for them, the sync fails. To prevent this, enlarge the oplog on each member (replSetResizeOplog), "
            "or restart the process with a larger --eventSpoolMB."
        )
    when = f" The spool will be full in {in_words((limit - size) / speed)}." if speed > 0 else ""
    return (
        f"The event spool has little room left ({held}).{when} A full spool can make the sync fail: restart the "
        "process with a larger --eventSpoolMB, if the disk of the destination has room."
    )
