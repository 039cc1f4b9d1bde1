"""Two daemons with `--standby` between the same clusters, as on two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import requests

from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import wait_for


class Duo:
    """Two daemons with `--standby`: `active` runs the sync, and `standby` waits to take over.

    After a takeover, `await_takeover` exchanges the two attributes.
    """

    def __init__(self, pair: Pair, folder: Path, *options: str) -> None:
        daemons = []
        for name in ("host0", "host1"):
            (folder / name).mkdir(parents=True)
            daemons.append(pair.daemon(folder / name, "--standby", *options))
        self.active, self.standby = daemons
        # The durations of the takeovers, in seconds.
        self.durations: list[float] = []

    def run(self) -> None:
        """Start both daemons, first the one that becomes active."""
        for each in (self.active, self.standby):
            each.run()
        assert [role_of(each) for each in (self.active, self.standby)] == ["active", "standby"]

    def close(self) -> None:
        for each in (self.active, self.standby):
            each.close()

    def await_takeover(self, what: str) -> None:
        """Wait until the standby has become active; then exchange `active` and `standby`.

        The takeover also counts if the new active daemon was killed afterwards. `what` describes the cause of the
        takeover in the printed message.
        """
        began = monotonic()
        standby = self.standby
        wait_for(lambda: role_of(standby) == "active" or _was_killed(standby), "a takeover")
        self.durations.append(monotonic() - began)
        print(f"takeover after {what}: {self.durations[-1]:.1f} s")
        self.active, self.standby = self.standby, self.active


def _was_killed(daemon: Daemon) -> bool:
    """Return whether the daemon was killed at a point that `kill_at` has set."""
    return daemon.exit_status is not None and any(daemon.folder.glob("kill-*"))


def role_of(daemon: Daemon) -> str | None:
    """Return the role of a daemon, "active" or "standby"; None if it does not answer or is still starting."""
    with suppress(requests.RequestException):
        progress: dict[str, Any] = daemon.progress()
        if progress["state"] != "INITIALIZING":
            return progress.get("role")
    return None


@contextmanager
def running_duo(
    pair: Pair, folder: Path, *options: str, leases: tuple[float, float] | None = None
) -> Iterator[Duo]:
    """Run two daemons with `--standby` during the block.

    `leases` are the durations of the leases of the first and of the second daemon, in seconds; None for the default.
    """
    duo = Duo(pair, folder, *options)
    if leases is not None:
        duo.active.set_lease(leases[0])
        duo.standby.set_lease(leases[1])
    try:
        duo.run()
        yield duo
    finally:
        duo.close()
