"""Time limits for the calls to clusters that an API command makes: scripts and operators wait for its answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pymongo

from verifier.cluster import failures
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import FOREVER, impatient, patience_left
from verifier.runtime.waits import waiting

# How long a command retries a failing call, in seconds.
PATIENCE = 8.0
# How long all calls in a block of `answered_soon` may take in total, in seconds.
_LONGEST = 12.0
_REMEDY = "That thread waits for a cluster: if a call takes long, another warning names it and the remedy."


@contextmanager
def answered_soon() -> Iterator[None]:
    """Limit all calls to clusters that this thread makes in the block to twelve seconds in total.

    After that time, calls fail with the driver's errors. A failing call is retried for up to eight seconds. Use this
    for API commands, whose answers operators wait for. A save that has timed out may still take effect; the next save
    of this process overwrites it.
    """
    with impatient(PATIENCE, in_total=_LONGEST), pymongo.timeout(_LONGEST):
        yield


@contextmanager
def one_save(lock: threading.Lock, subject: str) -> Iterator[None]:
    """Hold `lock` in the block, so that only one thread at a time saves an object, which `subject` names in messages.

    A long wait for the lock is shown to operators. In a block of `retry.impatient`, wait for the lock only as long as
    that block allows; then raise OperationError ClusterUnreachable.
    """
    seconds = patience_left()
    with waiting(f"Another thread is saving {subject}", _REMEDY):
        acquired = lock.acquire(timeout=-1 if seconds == FOREVER else seconds)
    if not acquired:
        raise OperationError(
            failures.CLUSTER_UNREACHABLE,
            f"Another thread is still saving {subject}, and waits for the answer of a cluster.",
        )
    try:
        yield
    finally:
        lock.release()
