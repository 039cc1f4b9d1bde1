"""Tests which limit is reported as the one that slows the sync down, and since when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from syncsvc.figures.throttling import Throttled, Waits
from syncsvc.limits import Limit

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
IN_FORCE = {Limit.COPY_BYTES: "slow disk", Limit.THREADS: "few"}


class Watch:
    def __init__(self) -> None:
        self.waits = Waits()
        self.at = 0

    def look(self, waited: dict[Limit, float], reasons: dict[Limit, str]) -> Throttled | None:
        self.at += 1
        now = BEGAN + timedelta(seconds=self.at)
        return self.waits.throttled(waited, reasons, float(self.at), now)


def test_a_limit_counts_while_work_waits_for_it() -> None:
    watch = Watch()
    assert watch.look({Limit.COPY_BYTES: 0.0}, IN_FORCE) is None
    first = watch.look({Limit.COPY_BYTES: 0.5}, IN_FORCE)
    assert first == Throttled(Limit.COPY_BYTES, "slow disk", BEGAN + timedelta(seconds=2))
    # The limit is still reported while work waits for other limits, and for some seconds after the last wait for it.
    both = {Limit.COPY_BYTES: 0.5, Limit.THREADS: 1.0}
    assert [watch.look(both, IN_FORCE) for _ in range(3)] == [first] * 3
    # A limit that is removed is no longer reported.
    assert watch.look({**both, Limit.COPY_BYTES: 9.0}, {}) is None


def test_the_current_reason_is_shown() -> None:
    watch = Watch()
    watch.look({Limit.EVENTS: 1.0}, {Limit.EVENTS: "events"})
    now = watch.look({Limit.EVENTS: 2.0}, {Limit.EVENTS: "auto"})
    assert now == Throttled(Limit.EVENTS, "auto", BEGAN + timedelta(seconds=1))
