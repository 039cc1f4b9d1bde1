"""Runs the writes of a test in a given phase of a sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon


class When(Enum):
    """The phases of a sync in which a test can write.

    REPLAY: the change stream has started, but the sync lists the collections only after the writes. So the events of
    the writes are applied to collections that already contain the result. LISTED: the sync has listed the collections,
    but starts the copy only after the writes. So the copy reads newer documents than those at the listing.
    """

    BEFORE = "before the sync"
    REPLAY = "between the start of the change stream and the listing of the collections"
    LISTED = "between the listing of the collections and the copy"
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
    """Start a sync, run the writes of the block in the given phase, and let the sync continue afterwards.

    For COPY, the source must hold at least one document, because the copy is held after its first batch.
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
