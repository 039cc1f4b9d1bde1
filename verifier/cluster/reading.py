"""Retries a read from its beginning after a temporary error, also if its cursor was lost between two pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from verifier.cluster import failures
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

T = TypeVar("T")


def read(call: Callable[[], T], stop: StopToken) -> T:
    """Call `call`, and return its result. After a temporary error or a lost cursor, call it again.

    `call` must read all pages before it returns. Raises the driver's other errors, and `Cancelled`.
    """
    return retry(call, failures.lost_cursor, stop)
