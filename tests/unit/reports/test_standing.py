"""Tests how the role (active or standby) and the readiness of a process are shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from syncsvc.figures.progress import Ping, ProgressSnapshot
from syncsvc.reports.standing import (
    Role,
    Standing,
    shown_by_standby,
    standing_report,
    why_not_ready,
)
from syncsvc.saved.lease import Lease
from syncsvc.state import State
from verifier.runtime.waits import LongWait

SINCE, EXPIRES = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 11, 500_000)
LEASE = Lease("name", "host0", "127.0.0.1:27182", SINCE, EXPIRES)
STANDBY, ACTIVE = Standing(Role.STANDBY, LEASE), Standing(Role.ACTIVE, LEASE)
NAMES = ("cluster0", "cluster1")
ANSWERED = {name: Ping(0.1) for name in NAMES}
SILENT = {**ANSWERED, "cluster1": Ping(None)}


def test_the_lease_is_shown_with_times_in_utc() -> None:
    lease = {"host": "host0", "address": "127.0.0.1:27182"}
    times = {"since": "2026-01-02T03:04:05.000Z", "expires": "2026-01-02T03:04:11.500Z"}
    assert standing_report(STANDBY) == {"role": "standby", "lease": {**lease, **times}}
    assert standing_report(Standing()) == {"role": "standby"}


def test_an_error_says_where_the_active_daemon_is() -> None:
    assert "host0" in STANDBY.where_active and "127.0.0.1:27182" in STANDBY.where_active
    assert "not known" in Standing().where_active
    expired = Standing(Role.STANDBY, replace(LEASE, expired=True)).where_active
    assert "has expired. The last active daemon ran on the host host0," in expired


WAIT = LongWait("A call fails", "Look.", 20.0)


@pytest.mark.parametrize("saved", [{}, {"warnings": ["The oplog is short."]}])
@pytest.mark.parametrize("waits", [(), (WAIT,)])
def test_a_standby_adds_its_own_waits(
    saved: dict[str, list[str]], waits: tuple[LongWait, ...]
) -> None:
    shown = shown_by_standby({"state": "INITIALIZING"}, {"state": "RUNNING", **saved}, waits)
    assert shown["state"] == "RUNNING"
    warnings = shown.get("warnings", [])
    assert len(warnings) == len(saved.get("warnings", [])) + len(waits)
    assert ("warnings" in shown) is bool(warnings)


def test_a_standby_shows_its_own_progress_until_another_is_saved() -> None:
    assert shown_by_standby({"state": "INITIALIZING"}, None, ()) == {"state": "INITIALIZING"}


@pytest.mark.parametrize(
    ("standing", "state", "names", "pings", "reason"),
    [
        (None, State.IDLE, NAMES, ANSWERED, None),
        (None, State.FAILED, NAMES, ANSWERED, None),
        (ACTIVE, State.RUNNING, NAMES, ANSWERED, None),
        (STANDBY, State.INITIALIZING, NAMES, ANSWERED, None),
        (ACTIVE, State.INITIALIZING, NAMES, ANSWERED, "is waking up"),
        (None, State.INITIALIZING, (), {}, "is waking up"),
        (STANDBY, State.INITIALIZING, NAMES, SILENT, "not answered by cluster1"),
        (ACTIVE, State.RUNNING, NAMES, {}, "not pinged cluster0 and cluster1"),
    ],
)
def test_readiness(
    standing: Standing | None,
    state: State,
    names: tuple[str, ...],
    pings: dict[str, Ping],
    reason: str | None,
) -> None:
    found = why_not_ready(standing, state, "waking up", names, ProgressSnapshot(pings=pings))
    assert found is None if reason is None else found is not None and reason in found
