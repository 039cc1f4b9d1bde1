"""Stops the balancer of a sharded cluster while a sync reads or writes the cluster, and restores its state afterwards.

As with write blocks (`writeblock`), the original state is saved in the run record before the balancer is stopped, and
removed from the record after it is restored. So the record names every stopped balancer, even if the process is killed
between two steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.saved.run_store import RunStore
from syncsvc.state import Phase
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.observer import Observer
from verifier.runtime.tasks import SLOW_POLL, StopToken, wait_until
from verifier.runtime.waits import waiting

_MOVING = "Check the balancer with sh.status()."
# The mode that `balancerStatus` reports for an enabled balancer.
_ON = "full"


@dataclass(frozen=True)
class Balancer:
    """The balancer of one cluster. `cluster` is the cluster's name in the run record, such as cluster0.

    Every method is idempotent, and raises the errors of `ClusterWriter.administer`; `keep_still` and `put_back` also
    raise those of `RunStore.update`. A replica set has no balancer: `keep_still` and `put_back` are no-ops for it, and
    `is_on` must not be called.
    """

    cluster: str
    sharded: bool
    writer: ClusterWriter
    run: RunStore
    observe: Observer

    def keep_still(self, stop: StopToken) -> None:
        """Save whether the balancer is on, stop it if so, and wait until its current round of migrations is finished.

        If a state is already saved, it is kept, and decides whether to stop the balancer. Raises `Cancelled` when
        stopped.
        """
        if not self.sharded:
            return
        if self.cluster not in self.run.record.found_balancing:
            found = {**self.run.record.found_balancing, self.cluster: self.is_on()}
            self.run.update(found_balancing=found)
            self.observe(Point.BALANCER_SAVED, self.cluster)
        if self.run.record.found_balancing[self.cluster]:
            # The command is retried until the balancer has finished its current round.
            self.writer.administer({"balancerStop": 1})
        with waiting(
            f"The sync waits until the balancer of {self.cluster} has finished its current chunk migrations",
            _MOVING,
        ):
            wait_until(lambda: not self._status()["inBalancerRound"], stop, SLOW_POLL)

    def put_back(self) -> None:
        """Start the balancer again if the saved state says that it was on; remove that state from the run record.

        A no-op if no state is saved.
        """
        found = self.run.record.found_balancing
        if self.cluster in found:
            if found[self.cluster]:
                self.writer.administer({"balancerStart": 1})
            left = {name: found[name] for name in found if name != self.cluster}
            self.run.update(found_balancing=left)

    def is_on(self) -> bool:
        """Return whether the balancer may move chunks; False if it is off, or may only split chunks."""
        return bool(self._status()["mode"] == _ON)

    def _status(self) -> dict[str, Any]:
        return self.writer.administer({"balancerStatus": 1})


def watch_balancers(
    balancers: Sequence[Balancer],
    run: RunStore,
    progress: Progress,
    interval: float,
    stop: StopToken,
) -> None:
    """Check the balancers every `interval` seconds until stopped, and warn while one of them is on.

    Skips the phases in which the sync stops the balancers itself. Returns immediately if neither cluster is sharded.
    Raises the errors of `Balancer.is_on`.
    """
    stopped = [each for each in balancers if each.sharded]
    try:
        while stopped:
            if run.record.phase not in (Phase.REVERSING, Phase.INITIALIZING):
                _update_warning(sorted(each.cluster for each in stopped if each.is_on()), progress)
            stop.sleep(interval)
    finally:
        progress.end_warning(WarningKind.BALANCER_ON)


def _update_warning(names: Sequence[str], progress: Progress) -> None:
    if not names:
        progress.end_warning(WarningKind.BALANCER_ON)
        return
    progress.warn(
        WarningKind.BALANCER_ON,
        f"A user or another sync started the balancer of {' and '.join(names)} during this sync. No data is "
        "lost, but chunk migrations slow the sync down. Stop the balancer (sh.stopBalancer()); the commit starts it "
        "again if it was on before the sync.",
    )
