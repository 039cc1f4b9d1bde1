"""Counters, the lag and the warnings in Progress change, but a snapshot that was read earlier does not.

Warnings that have begun are remembered until they are saved.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from time import monotonic
from typing import Any

import pytest

from syncsvc.figures.progress import Progress, ProgressSnapshot, WarningKind
from syncsvc.figures.trends import Lag
from verifier.runtime.tasks import StopToken, TaskGroup
from verifier.runtime.waits import LongWait


def test_nothing_is_known_at_first() -> None:
    snapshot = Progress().snapshot
    assert (snapshot.total_bytes, snapshot.lag_seconds, snapshot.caught_up) == (None, None, False)


def test_counters_add_up() -> None:
    progress = Progress()
    progress.add(copied_documents=2, copied_bytes=100)
    progress.add(copied_documents=1, copied_bytes=50)
    progress.add(events_applied=8, documents_refetched=1)
    assert progress.snapshot == ProgressSnapshot(
        copied_documents=3, copied_bytes=150, events_applied=8, documents_refetched=1
    )


def test_setting_values_keeps_the_others() -> None:
    progress = Progress()
    progress.add(copied_documents=2, copied_bytes=100)
    progress.set(total_bytes=500, lag_seconds=3, caught_up=True)
    assert progress.snapshot == ProgressSnapshot(
        total_bytes=500, copied_bytes=100, copied_documents=2, lag_seconds=3, caught_up=True
    )


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(TypeError):
        Progress().set(speed=1)
    with pytest.raises(AttributeError):
        Progress().add(speed=1)


def test_a_snapshot_is_immutable() -> None:
    progress = Progress()
    before = progress.snapshot
    progress.add(events_applied=1)
    assert before.events_applied == 0
    with pytest.raises(FrozenInstanceError):
        before.events_applied = 1


def test_a_lag_is_remembered_until_it_is_forgotten() -> None:
    progress = Progress()
    progress.set_lag(5)
    progress.set_lag(3)
    snapshot = progress.snapshot
    assert (snapshot.lag_seconds, [lag.seconds for lag in snapshot.lags]) == (3, [5, 3])
    assert snapshot.lags[-1].at < snapshot.lag_until
    progress.forget_pace()
    assert (progress.snapshot.lag_seconds, progress.snapshot.lags) == (None, ())


@pytest.mark.parametrize(
    "fields, lag",
    [
        ({"lag_seconds": 3, "lag_until": 100.0}, 3),
        ({"lag_seconds": 3, "lag_until": 99.0}, None),
        # All changes are applied.
        ({"lag_seconds": 0, "lag_until": math.inf}, 0),
        ({"lag_seconds": None, "lag_until": 99.0}, None),
    ],
)
def test_a_lag_that_is_no_longer_measured_is_unknown(
    fields: dict[str, Any], lag: int | None
) -> None:
    snapshot = ProgressSnapshot(lags=(Lag(3, 85.0),), events_read=7, **fields).at(100.0)
    assert (snapshot.lag_seconds, snapshot.events_read) == (lag, 7)


def test_an_outdated_lag_leaves_every_snapshot() -> None:
    """If the source hangs, its lag is no longer measured. Every snapshot must then have an unknown lag."""
    progress = Progress()
    progress.set_lag(5)
    progress.set(lag_until=monotonic() - 1)
    assert (progress.snapshot.lag_seconds, progress.snapshot.lags) == (None, ())
    progress.set_lag(7)
    assert [lag.seconds for lag in progress.snapshot.lags] == [7]


def test_a_warning_is_shown_until_it_ends_and_logged_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    progress = Progress()
    progress.warn(WarningKind.OPLOG_SHORT, "an hour is left")
    progress.warn(WarningKind.OPLOG_UNKNOWN, "a role is missing")
    progress.warn(WarningKind.OPLOG_SHORT, "a minute is left")
    assert progress.snapshot.warnings == {
        WarningKind.OPLOG_SHORT: "a minute is left",
        WarningKind.OPLOG_UNKNOWN: "a role is missing",
    }
    progress.end_warning(WarningKind.OPLOG_SHORT)
    progress.end_warning(WarningKind.OPLOG_SHORT)
    assert list(progress.snapshot.warnings) == [WarningKind.OPLOG_UNKNOWN]
    told = [(each.message, vars(each)["warning"]) for each in caplog.records]
    assert told == [
        (
            "The progress shows a new warning; the text of the warning says what to do.",
            "oplog short",
        ),
        (
            "The progress shows a new warning; the text of the warning says what to do.",
            "oplog unknown",
        ),
        ("A warning in the progress has ended.", "oplog short"),
    ]


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Make Python switch between threads at almost every step, to expose missing locks."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_nothing_is_lost_between_threads() -> None:
    progress = Progress()

    def count() -> None:
        for _ in range(500):
            progress.add(copied_documents=1, copied_bytes=2)
            progress.add(events_applied=1)

    with TaskGroup("test", StopToken()) as group:
        for number in range(4):
            group.spawn(str(number), count)
    snapshot = progress.snapshot
    assert (snapshot.copied_documents, snapshot.copied_bytes) == (2000, 4000)
    assert snapshot.events_applied == 2000


def test_warnings_that_have_ended_are_remembered_until_they_are_saved() -> None:
    progress = Progress()
    progress.warn(WarningKind.OPLOG_SHORT, "Short.")
    progress.end_warning(WarningKind.OPLOG_SHORT)
    progress.show_waits((LongWait("A call does not succeed", "Do something.", 20.0),))
    begun = progress.begun
    assert set(begun) == {"oplog short", "A call does not succeed"}
    progress.warn(WarningKind.BALANCER_ON, "On.")
    progress.forget_begun(begun)
    assert progress.begun == {"balancer on": "On."}


def test_a_warning_with_a_new_text_is_remembered_although_the_earlier_text_is_saved() -> None:
    progress = Progress()
    progress.warn(WarningKind.OPLOG_SHORT, "Short.")
    begun = progress.begun
    progress.warn(WarningKind.OPLOG_SHORT, "Shorter.")
    progress.end_warning(WarningKind.OPLOG_SHORT)
    progress.forget_begun(begun)
    assert progress.begun == {"oplog short": "Shorter."}
