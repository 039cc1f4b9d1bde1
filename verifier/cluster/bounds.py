"""Time limits for the calls of a command, because scripts and operators wait for its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymongo

from verifier.runtime.retry import impatient

# How long a command retries a failing call, in seconds.
PATIENCE = 8.0
# How long all calls of a short command may take together, in seconds.
_LONGEST = 12.0


@contextmanager
def answered_soon() -> Iterator[None]:
    """Limit the time that the calls of a short command take. Raises the driver's errors.

    A save that timed out may still take effect; the next save of this process overwrites it.
    """
    with impatient(PATIENCE), pymongo.timeout(_LONGEST):
        yield
