"""Compares how long the source's oplog keeps the needed changes with how long the sync still needs them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from syncsvc.figures.headroom import AMPLE, SHORT, is_short
from syncsvc.reports.durations import about

# The oplog must outlast a known need by these factors: above the first one, all is well; below the second one, not.
_COMFORTABLE, _SCARCE = 2.0, 1.2
_UNSURE = "It is not known for how long the oplog keeps the changes."


class Level(Enum):
    """The risk that the oplog drops changes that are still needed; GREEN is no risk."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Headroom:
    """`left` is for how many seconds the oplog keeps the changes, `needed` for how many seconds they are needed.

    None means unknown; `left` is infinite if nothing is written.
    """

    level: Level
    left: float | None
    needed: float | None
    text: str


def headroom(left: float | None, needed: float | None, spooling: bool) -> Headroom:
    """Judge the headroom. `spooling` is whether change events are being saved, so that the oplog is not needed."""
    if spooling:
        text = "Change events are being saved on the destination, so the oplog need not keep them."
        return Headroom(Level.GREEN, left, needed, text)
    if left is None:
        return Headroom(Level.UNKNOWN, None, needed, _UNSURE)
    if math.isinf(left):
        return Headroom(Level.GREEN, left, needed, "Nothing is written to the source.")
    kept = f"The oplog keeps the changes for about {about(left)}"
    if needed is None:
        level = Level.GREEN if left >= AMPLE else Level.AMBER
        level = Level.RED if is_short(left) else level
        return Headroom(level, left, None, f"{kept}; how long they are needed is not known yet.")
    need = f"they are needed for about {about(needed)}" if needed >= 1 else "they are all applied"
    return Headroom(_level(left, needed), left, needed, f"{kept}; {need}.")


def _level(left: float, needed: float) -> Level:
    if left < _SCARCE * needed:
        return Level.RED
    return Level.AMBER if left < max(_COMFORTABLE * needed, SHORT) else Level.GREEN
