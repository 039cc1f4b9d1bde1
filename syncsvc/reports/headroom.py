"""Compares how long the source's oplog keeps the needed changes with how long the sync still needs them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from syncsvc.figures.headroom import AMPLE, SHORT, is_short
from syncsvc.reports.durations import about

# The oplog should keep the changes longer than they are needed. If it keeps them for less than _SCARCE times as long,
# the level is RED; for less than _COMFORTABLE times as long, the level is not GREEN.
_COMFORTABLE, _SCARCE = 2.0, 1.2
_UNSURE = "It is unknown how long the source's oplog keeps the changes that the sync needs."


class Level(Enum):
    """The risk that the oplog drops changes that the sync still needs, from GREEN (low) to RED (high)."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Headroom:
    """The time for which the oplog keeps the needed changes (`left`), compared with the time for which they are needed.

    Both times are in seconds; None means unknown. `left` is infinite if nothing is written. `text` explains `level`.
    """

    level: Level
    left: float | None
    needed: float | None
    text: str


def headroom(left: float | None, needed: float | None, spooling: bool) -> Headroom:
    """Judge whether the source's oplog keeps the needed changes for long enough.

    `left` is the number of seconds for which the oplog keeps these changes, and `needed` the number of seconds for
    which the sync needs them; None if unknown. `spooling` is whether change events are being saved, so that the sync
    does not need the oplog.
    """
    if spooling:
        text = "Change events are being saved on the destination, so the source's oplog need not keep them."
        return Headroom(Level.GREEN, left, needed, text)
    if left is None:
        return Headroom(Level.UNKNOWN, None, needed, _UNSURE)
    if math.isinf(left):
        return Headroom(
            Level.GREEN,
            left,
            needed,
            "Nothing is written to the source, so the source's oplog drops no changes.",
        )
    kept = f"The source's oplog keeps the needed changes for about {about(left)}"
    if needed is None:
        level = Level.GREEN if left >= AMPLE else Level.AMBER
        level = Level.RED if is_short(left) else level
        return Headroom(
            level, left, None, f"{kept}; it is not known how long the sync needs these changes."
        )
    need = (
        f"the sync needs these changes for about {about(needed)}"
        if needed >= 1
        else "the sync needs these changes for less than a second"
    )
    return Headroom(_level(left, needed), left, needed, f"{kept}; {need}.")


def _level(left: float, needed: float) -> Level:
    if left < _SCARCE * needed:
        return Level.RED
    return Level.AMBER if left < max(_COMFORTABLE * needed, SHORT) else Level.GREEN
