"""Decides whether change events must be spooled because the source's oplog may become too short. Pure."""

from __future__ import annotations

from syncsvc.figures.trends import SHORTEST_FORECAST, in_words

# If it is unknown how long the events are still needed, they are spooled when the oplog holds them for less than this,
# in seconds.
_RESERVE = 2 * SHORTEST_FORECAST
# Both estimates are rough, and the spooling itself takes time: the oplog must outlast the need by this factor.
_MARGIN = 1.5
# For how long an oplog that cannot be read is assumed to hold its entries, in seconds. Shards keep a day and more, but
# the time since which the stream of a cluster must be read is the only thing known.
_ASSUMED_OPLOG = 2 * 3600.0
# The shares of the size limit from which on a warning begins, and below which it ends.
_FILLING, _ROOMY = 0.8, 0.7


def is_needed(left: float, rest: float | None) -> bool:
    """Return whether change events must be spooled now.

    `left` is in how many seconds the oplog begins to drop events that the sync needs, `rest` for how many seconds the
    sync still needs the oldest of them (None if unknown).

    There is no way back in this decision: spooling ends when the events up to the present are applied or handed on. So
    estimates that go up and down do not start and stop it again and again.
    """
    return left < (_RESERVE if rest is None else _MARGIN * rest)


def assumed_left(age: float) -> float:
    """Return for how long an oplog that cannot be read still holds its entries, if the sync needs those of `age`.

    Both are in seconds; `age` is the time since the oldest entry that the sync needs.
    """
    return _ASSUMED_OPLOG - age


def warning(size: int, limit: int, speed: float, warned: bool) -> str | None:
    """Return the text of a warning if the spool fills up; None if it has enough room.

    `size` and `limit` are in bytes, `speed` is in bytes per second; `warned` is whether the warning is active.
    """
    if size < (_ROOMY if warned else _FILLING) * limit:
        return None
    held = f"{size / 1e6:.0f} MB of {limit / 1e6:.0f} MB"
    if size >= limit:
        return (
            f"The event spool is full ({held}). If the oplog of the source drops the next change events before there "
            "is room for them, the sync fails: enlarge the oplog on each member (replSetResizeOplog), or restart the "
            "process with a larger --eventSpoolMB."
        )
    when = f" It will be full in {in_words((limit - size) / speed)}." if speed > 0 else ""
    return (
        f"The event spool has little room left ({held}).{when} Restart the process with a larger --eventSpoolMB, if "
        "the disk of the destination has room."
    )
