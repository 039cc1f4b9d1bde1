"""Lets one test run its writes once in each phase of a sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from syncsvc.engine.observe import Point
from tests.support.daemon import Daemon


class When(Enum):
    """Where in a sync the writes of a test happen."""

    BEFORE = "before the sync"
    COPY = "during the copy"
    APPLY = "during change event application"


@contextmanager
def writes_in(when: When, daemon: Daemon, **options: Any) -> Iterator[None]:
    """The block's writes fall into that phase; when it is left, the sync is running.

    The source must hold at least one document: the copy is held at its first batch.
    """
    if when is When.BEFORE:
        yield
        daemon.start(**options)
    elif when is When.COPY:
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start(**options)
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            yield
    else:
        daemon.start(**options)
        daemon.wait_until_committable()
        yield
