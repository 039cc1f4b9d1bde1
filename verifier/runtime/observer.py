"""The observer of a run: a function that is called at certain named points of the code, for tests.

Production passes `ignore`. Tests pass an observer that waits, writes or kills the process at a given point.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

# Called with the point (a member of an enumeration) and the name of its subject, such as a namespace or a step.
Observer = Callable[[Enum, str], None]


def ignore(point: Enum, subject: str) -> None:
    """Do nothing. This is the observer in production."""
