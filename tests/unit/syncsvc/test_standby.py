"""Tests that a daemon that stops being active reports this as a long wait, until it has stopped.

Fakes replace the service and the lease.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from syncsvc.saved.lease import Lease, LeaseKeeper
from syncsvc.service import Service
from syncsvc.standby import Standby
from syncsvc.state import State
from syncsvc.tuning import Tuning
from verifier.runtime import waits
from verifier.runtime.tasks import Cancelled, StopToken


class _Service:
    """A fake service without clusters. `forget` stops the token of the test.

    The daemon calls `forget` after each term, which is a period in which the daemon is active.

    `wait_for_commands` only stores the descriptions of the current long waits in `waits`.
    """

    instance = "coordinator"
    silent_clusters: list[str] = []
    state = State.IDLE

    def __init__(self, stop: StopToken) -> None:
        self._stop = stop
        # This object is also the `gate` and the `queries` of the fake service.
        self.gate = self.queries = self
        self.waits: list[str] = []

    def show_standing(self, standing: Any) -> None:
        pass

    def own_progress(self) -> dict[str, Any]:
        return {}

    def wait_for_commands(self) -> None:
        self.waits = [each.what for each in waits.long_waits()]

    def forget(self) -> None:
        self._stop.stop("one term is enough")


class _Keeper:
    """A fake of the LeaseKeeper: it gets the lease, but the first renewal finds that it no longer holds the lease."""

    def read(self) -> Lease | None:
        return None

    def claim(self) -> Lease:
        now = datetime.now(UTC)
        return Lease("holder", "host", "localhost:1", now, now)

    def holds(self, lease: Lease) -> bool:
        return True

    def renew(self, progress: Any) -> None:
        return None

    def release(self) -> None:
        pass


def test_the_end_of_a_term_is_a_visible_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    stop = StopToken()
    service = _Service(stop)
    keeper = cast(LeaseKeeper, _Keeper())
    standby = Standby(cast(Service, service), {}, lambda: keeper, Tuning(), lambda *_: None)
    with pytest.raises(Cancelled):
        standby.run(stop)
    assert [each for each in service.waits if "stops being active" in each]
    assert not [each for each in waits.long_waits() if "stops being active" in each.what]
