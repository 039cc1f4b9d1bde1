"""Repeats reads as a whole when a cluster fails between two of their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from verifier.cluster import failures
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

T = TypeVar("T")


def read(call: Callable[[], T], stop: StopToken) -> T:
    """Return what `call` reads, repeating it from its first page after a transient error or a lost cursor.

    `call` returns only when it has read all pages. Raises the other errors of the driver, and `Cancelled`.
    """
    return retry(call, failures.lost_cursor, stop)
