"""Retries a read from its beginning if the cluster fails between two pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from verifier.cluster import failures
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

T = TypeVar("T")


def read(call: Callable[[], T], stop: StopToken) -> T:
    """Return the result of `call`, called again as a whole after a temporary error or a lost cursor.

    `call` must return only after it has read all pages. Raises the driver's other errors, and `Cancelled`.
    """
    return retry(call, failures.lost_cursor, stop)
