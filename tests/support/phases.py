"""Lets one test run its writes once in each phase of a sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon


class When(Enum):
    """Where in a sync the writes of a test happen."""

    BEFORE = "before the sync"
    REPLAY = "between the start of the change stream and the listing, which knows more than the events say"
    LISTED = "between the listing and the copy, which finds the documents of later"
    COPY = "during the copy"
    APPLY = "during change event application"


PHASES = (When.BEFORE, When.COPY, When.APPLY)

_HELD_AT = {
    When.REPLAY: Point.STARTED,
    When.LISTED: Point.LISTED,
    When.COPY: Point.BATCH_WRITTEN,
}


@contextmanager
def writes_in(when: When, daemon: Daemon, **options: Any) -> Iterator[None]:
    """The block's writes fall into that phase; when it is left, the sync is running.

    The source must hold at least one document: the copy is held at its first batch.
    """
    if when is When.BEFORE:
        yield
        daemon.start(**options)
    elif when is When.APPLY:
        daemon.start(**options)
        daemon.wait_until_committable()
        yield
    else:
        with daemon.held_at(_HELD_AT[when]):
            daemon.start(**options)
            daemon.wait_until_reached(_HELD_AT[when])
            yield
