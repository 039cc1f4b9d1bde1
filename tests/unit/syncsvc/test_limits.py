"""Tests which speed limits of a sync apply at which time of day, and which requests for limits are refused.

Also tests how a change is merged with the other limits, how limits are shown, and how instances share them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Event
from typing import Any

import pytest

from syncsvc.background.limiter import Limiter, with_ceiling, work_of
from syncsvc.engine.run.pace import Pace
from syncsvc.figures.overload import Ceiling
from syncsvc.figures.progress import Progress, ProgressSnapshot
from syncsvc.limits import Limit, Limits, limits_of, merged, rates_shown, share_of
from syncsvc.reports.sync import Sync
from syncsvc.schemas import LimitsSchema
from syncsvc.state import Phase, State
from tests.unit.deadlines import no_longer_than
from tests.unit.syncsvc.records import known, run_record
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import load

NIGHT = {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin", "limits": {}}
NOON = {"from": "12:00", "to": "13:30", "limits": {"threads": 1}}
CHANGES = {"copyBytesPerSecond": 20_000_000, "windows": [NIGHT, NOON]}
LIMITED = {Limit.COPY_BYTES: 20_000_000}


@pytest.mark.parametrize(
    "now, rates",
    [
        # 22:00 in Berlin is 21:00 UTC in winter, and 20:00 UTC in summer.
        ("2026-01-10T20:59:59+00:00", LIMITED),
        ("2026-01-10T21:00:00+00:00", {}),
        ("2026-01-11T04:59:59+00:00", {}),
        ("2026-01-11T05:00:00+00:00", LIMITED),
        ("2026-07-10T20:00:00+00:00", {}),
        ("2026-07-10T04:00:00+00:00", LIMITED),
        ("2026-07-10T12:00:00+00:00", {Limit.THREADS: 1}),
        ("2026-07-10T13:30:00+00:00", LIMITED),
        ("2026-07-10T13:00:00+01:00", {Limit.THREADS: 1}),
    ],
)
def test_a_window_replaces_the_limits(now: str, rates: dict[Limit, int]) -> None:
    limits = limits_of(load(LimitsSchema(), CHANGES))
    assert limits.at(datetime.fromisoformat(now))[0] == rates


@pytest.mark.parametrize(
    "begin, end",
    [
        # In Berlin, there is no 02:30 on this day: 03:00 follows 02:00 at 01:00 UTC.
        ("2026-03-29T01:00", "2026-03-29T01:30"),
        # On this day, 02:30 occurs twice: 02:00 follows 03:00 at 01:00 UTC.
        ("2026-10-25T00:30", "2026-10-25T01:00"),
        ("2026-10-25T01:30", "2026-10-25T02:30"),
    ],
)
def test_a_window_follows_the_clocks_when_they_change(begin: str, end: str) -> None:
    window = {"from": "02:30", "to": "03:30", "timezone": "Europe/Berlin", "limits": {"threads": 1}}
    limits = limits_of(load(LimitsSchema(), {"windows": [window]}))
    times = [datetime.fromisoformat(f"{each}+00:00") for each in (begin, end)]
    before = [limits.at(each - timedelta(seconds=1))[1] is not None for each in times]
    at = [limits.at(each)[1] is not None for each in times]
    assert (before, at) == ([False, True], [True, False])


def test_a_change_does_not_wait_for_another_one() -> None:
    # Otherwise, changes that wait for a cluster would occupy all threads that answer requests.
    saving, answered = Event(), Event()

    def home() -> None:
        saving.set()
        answered.wait()

    sync = Sync(State.IDLE, None, ProgressSnapshot(), can_commit=False)
    limiter = Limiter(Pace(), Progress(), lambda: sync, home)
    with ThreadPoolExecutor() as executor:
        first = executor.submit(limiter.change, {"threads": 1})
        try:
            saving.wait()
            with no_longer_than(10), pytest.raises(
                OperationError, match="Another command is still"
            ):
                limiter.change({"threads": 2})
        finally:
            answered.set()
        first.result()
    limiter.change({"eventsPerSecond": 3})
    assert limiter.limits.rates == {Limit.THREADS: 1, Limit.EVENTS: 3}


@pytest.mark.parametrize(
    "phase, state, adopts, work",
    [
        (Phase.COPYING, State.RUNNING, False, Limit.COPY_BYTES),
        (Phase.INDEXING, State.RUNNING, False, None),
        (Phase.APPLYING, State.RUNNING, False, Limit.EVENTS),
        (Phase.APPLYING, State.RUNNING, True, Limit.COPY_BYTES),
        (Phase.APPLYING, State.PAUSED, False, None),
    ],
)
def test_auto_limits_the_present_work(
    phase: Phase, state: State, adopts: bool, work: Limit | None
) -> None:
    sync = known(run_record(phase=phase, state=state), ProgressSnapshot(adopts_collection=adopts))
    assert work_of(sync) is work


def test_a_copy_between_change_events_keeps_their_ceiling() -> None:
    events, copy = Ceiling(rate=7.0), Ceiling(rate=8.0)
    during = with_ceiling({Limit.EVENTS: events}, Limit.COPY_BYTES, copy)
    assert during == {Limit.EVENTS: events, Limit.COPY_BYTES: copy}
    assert with_ceiling(during, Limit.EVENTS, events) == {Limit.EVENTS: events}


def test_the_first_of_two_windows_counts() -> None:
    always = {"from": "06:00", "to": "05:59", "limits": {"eventsPerSecond": 7}}
    limits = limits_of(load(LimitsSchema(), {"windows": [NOON, always]}))
    found = [limits.at(datetime.fromisoformat(f"2026-01-10T{at}+00:00"))[0] for at in ("12", "14")]
    assert found == [{Limit.THREADS: 1}, {Limit.EVENTS: 7}]


def test_limits_are_shown_as_they_are_given() -> None:
    auto = {"enabled": True, "maxQueue": None}
    shown = limits_of(load(LimitsSchema(), {**CHANGES, "auto": auto})).shown()
    assert limits_of(shown).shown() == shown
    assert shown["copyBytesPerSecond"] == 20_000_000 and shown["threads"] is None
    assert shown["windows"][1] == {
        **NOON,
        "timezone": "UTC",
        "limits": shown["windows"][1]["limits"],
    }
    assert shown["auto"] == {**Limits().auto.shown(), **auto}


def test_a_change_keeps_all_other_limits() -> None:
    document = limits_of(CHANGES).shown()
    for changes in ({"threads": 2}, {"auto": {"enabled": True}}, {"auto": {"maxQueue": 9}}):
        document = merged(document, load(LimitsSchema(), changes))
    assert document["copyBytesPerSecond"] == 20_000_000 and document["threads"] == 2
    assert (document["auto"]["enabled"], document["auto"]["maxQueue"]) == (True, 9)
    removed = merged(document, {"copyBytesPerSecond": None, "windows": None, "auto": None})
    assert limits_of(removed) == Limits({Limit.THREADS: 2})


def test_instances_share_the_total() -> None:
    rates = {Limit.COPY_BYTES: 10, Limit.EVENTS: 2, Limit.THREADS: 2}
    assert share_of(rates, 3) == {Limit.COPY_BYTES: 3, Limit.EVENTS: 1, Limit.THREADS: 2}
    assert share_of(rates, 1) == rates


def test_a_limit_that_does_not_apply_is_null() -> None:
    assert rates_shown({Limit.EVENTS: 5}) == {
        "copyBytesPerSecond": None,
        "copyDocumentsPerSecond": None,
        "eventsPerSecond": 5,
        "threads": None,
    }


@pytest.mark.parametrize(
    "body, named",
    [
        ({"copyBytesPerSecond": 0}, "copyBytesPerSecond: "),
        ({"copyDocumentsPerSecond": "5"}, "copyDocumentsPerSecond: Not a whole number"),
        ({"eventsPerSecond": True}, "eventsPerSecond: Not a whole number"),
        ({"threads": 1.5}, "threads: Not a whole number"),
        ({"threads": 10**400}, "threads: "),
        ({"speed": 1}, "speed: Unknown field"),
        ({"windows": [{**NOON, "from": "24:00"}]}, "windows[0].from: "),
        ({"windows": [{**NOON, "from": "9:00"}]}, "windows[0].from: "),
        ({"windows": [{**NOON, "to": "12:00\n"}]}, "windows[0].to: "),
        ({"windows": [{**NOON, "to": "12:00"}]}, "windows[0].to: Must differ"),
        ({"windows": [{**NOON, "timezone": "Berlin"}]}, "windows[0].timezone: "),
        ({"windows": [{**NOON, "timezone": "../etc"}]}, "windows[0].timezone: "),
        ({"windows": [{**NOON, "timezone": ""}]}, "windows[0].timezone: "),
        ({"windows": [{"from": "12:00", "to": "13:00"}]}, "windows[0].limits: "),
        ({"windows": [{**NOON, "limits": {"auto": {}}}]}, "windows[0].limits.auto: "),
        ({"auto": {"enabled": 1}}, "auto.enabled: "),
        ({"auto": {"maxQueue": -1}}, "auto.maxQueue: "),
    ],
)
def test_a_wrong_limit_is_refused_by_name(body: dict[str, Any], named: str) -> None:
    with pytest.raises(OperationError) as error:
        load(LimitsSchema(), body)
    assert named in error.value.description
