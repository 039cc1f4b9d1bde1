"""Bounds the calls of a command, because scripts and operators wait for its answer, whatever the clusters do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymongo

from verifier.runtime.retry import impatient

# For how long a command repeats a failing call, in seconds.
PATIENCE = 8.0
# How long all calls of a command that does little may take together, in seconds.
_LONGEST = 12.0


@contextmanager
def answered_soon() -> Iterator[None]:
    """Bound the calls of a command that does little. Raises the driver's errors.

    A save that was given up may still take effect; the next save of this process overwrites it.
    """
    with impatient(PATIENCE), pymongo.timeout(_LONGEST):
        yield
