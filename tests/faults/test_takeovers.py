"""Makes the active daemon fail in each phase of a sync, and measures the duration of each takeover.

With `--record`, the durations are saved for the documentation. A takeover lasts from the failure until the destination
has accepted the first write or command of the new active daemon in this phase.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest

from syncsvc.engine.run.points import Point
from tests.faults.flight import Record
from tests.faults.proxied import Proxied
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.duo import Duo, role_of, running_duo
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.full, pytest.mark.slow]

ROUNDS = 20
OPTIONS = {
    "buildIndexes": "afterDataCopy",
    "reversible": True,
    "enableUserWriteBlocking": "sourceAndDestination",
}
Place = tuple[Point, str]


@dataclass(frozen=True)
class Phase:
    """A phase of a sync in which a test makes the active daemon fail.

    The active daemon waits at the point `lost_at` of its code until it fails. The new active daemon reaches the point
    `works_at` when the destination has accepted its first write or command.
    """

    name: str
    lost_at: Place
    works_at: Place


PHASES = (
    Phase("listing", (Point.COLLECTION_CREATED, ""), (Point.COLLECTION_CREATED, "")),
    Phase("copy", (Point.BATCH_WRITTEN, ""), (Point.BATCH_WRITTEN, "")),
    Phase("index build", (Point.INDEXES_BUILT, ""), (Point.INDEXES_BUILT, "")),
    Phase("events", (Point.EVENTS_APPLIED, ""), (Point.EVENTS_APPLIED, "")),
    Phase("commit", (Point.STEP_DONE, "drained"), (Point.STEP_DONE, "source blocked")),
    Phase("reverse", (Point.COLLECTION_WEAKENED, ""), (Point.COLLECTION_WEAKENED, "")),
)


@contextmanager
def _killed(proxied: Proxied, daemon: Daemon) -> Iterator[None]:
    daemon.kill()
    yield
    daemon.run(ready=False)


@contextmanager
def _suspended(proxied: Proxied, daemon: Daemon) -> Iterator[None]:
    daemon.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.signal(signal.SIGCONT)


@contextmanager
def _cut_off(proxied: Proxied, daemon: Daemon) -> Iterator[None]:
    """Hold all network traffic of the daemon during the block, and deliver it at the end."""
    with ExitStack() as stack:
        for each in proxied.networks:
            stack.enter_context(each.held_of(daemon.pid))
        yield


# At the end of its block, each fault lets the lost daemon continue, or starts it again.
FAULTS: dict[str, Callable[[Proxied, Daemon], AbstractContextManager[None]]] = {
    "SIGKILL": _killed,
    "SIGSTOP": _suspended,
    "network cut": _cut_off,
}


class _Flight:
    """One sync whose active daemon fails once in every phase, always by the same fault."""

    def __init__(self, proxied: Proxied, duo: Duo, fault: str, record: Record) -> None:
        self._proxied = proxied
        self._duo = duo
        self._fault = fault
        self._record = record
        self._changes = 0
        self._phases = iter(PHASES)
        self._hold_in_next_phase(duo.active)

    def _hold_in_next_phase(self, daemon: Daemon) -> None:
        self._phase = next(self._phases, None)
        self._held = ExitStack()
        if self._phase is not None:
            self._held.enter_context(daemon.held_at(*self._phase.lost_at))

    def lose(self, users: writes.AnyClient | None = None) -> None:
        """Wait until the active daemon is in the next phase, make it fail, and wait for the standby to take over.

        If `users` is not None, also write to the cluster of this client before and after the takeover. At the end, the
        failed daemon is the standby.
        """
        duo, phase, held = self._duo, self._phase, self._held
        assert phase is not None
        former, successor = duo.active, duo.standby
        former.wait_until_reached(*phase.lost_at)
        self.change(users)
        with successor.held_at(*phase.works_at):
            began = monotonic()
            with FAULTS[self._fault](self._proxied, former):
                duo.await_takeover(f"{self._fault} during {phase.name}")
                successor.wait_until_reached(*phase.works_at)
                self._note(phase, monotonic() - began)
                self.change(users)
            self._hold_in_next_phase(successor)
        held.close()
        wait_for(lambda: role_of(former) == "standby", "the lost daemon is a standby")
        assert role_of(successor) == "active"

    def _note(self, phase: Phase, seconds: float) -> None:
        takeover = {
            "phase": phase.name,
            "fault": self._fault,
            "seconds": round(seconds, 2),
            "load": round(os.getloadavg()[0], 1),
        }
        self._record("takeover", takeover)
        print(takeover)

    def change(self, users: writes.AnyClient | None) -> None:
        """Make writes and DDL operations on a cluster, different ones with each call; a no-op if `users` is None."""
        if users is None:
            return
        self._changes += 1
        d, number = users.d, self._changes
        d.c.insert_many({"_id": f"{number} {n}"} for n in range(10))
        d.c.update_many({}, {"$set": {"newest": number}})
        d.c.delete_one({"_id": f"{number} 3"})
        d[f"made {number}"].insert_one({"_id": 1})


@pytest.mark.parametrize(
    ("number", "fault"), [(number, fault) for number in range(ROUNDS) for fault in FAULTS]
)
def test_the_active_daemon_is_lost_in_every_phase(
    proxied: Proxied, tmp_path: Path, record_property: Record, number: int, fault: str
) -> None:
    pair = proxied.pair
    pair.empty()
    source, destination = pair.source.client, pair.destination.client
    writes.indexes(source)
    writes.fill(source)
    with running_duo(pair, tmp_path) as duo:
        flight = _Flight(proxied, duo, fault, record_property)
        duo.active.start(**OPTIONS)
        for _ in ("listing", "copy", "index build", "events"):
            flight.lose(source)
        duo.active.ask_for_commit()
        flight.lose()
        # The successor completes the commit without another request.
        duo.active.wait_for_state("COMMITTED")
        pair.assert_equal()
        flight.change(destination)
        assert duo.active.post("reverse").json() == {"success": True}
        flight.lose(destination)
        duo.active.wait_for_state("RUNNING")
        flight.change(destination)
        duo.active.commit()
        pair.assert_equal()
