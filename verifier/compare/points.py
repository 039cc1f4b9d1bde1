"""The points in a check that an observer may listen to.

Production passes `ignore`. Tests pass an observer that waits, writes or kills the process at a given point.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Point(Enum):
    BEGUN = "begun"
    LISTED = "listed"
    DEFINITION_COMPARED = "definition compared"
    TASK_DONE = "task done"
    POSITION_SAVED = "position saved"
    GENERATION_BEGUN = "generation begun"
    GENERATION_DONE = "generation done"
    WRITES_OFF = "writes off"
    DRAINED = "drained"
    VERDICT_SAVED = "verdict saved"


# Called with the point and its subject: a namespace, a generation or a cluster.
Observer = Callable[[Point, str], None]


def ignore(point: Point, subject: str) -> None:
    """Do nothing; the observer in production."""
