"""The cut-over: small steps in a fixed order; each is idempotent, and is recorded when it is done.

A restart continues with the first step that is not recorded. Until the commit, the destination holds unique indexes
without their uniqueness. The first step makes them refuse new duplicates; then the destination is unblocked, and then
reported as writable. Making the indexes unique can take long, so it comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.reversal import prepare_reversal
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from verifier.runtime.tasks import StopToken

Step = tuple[str, Callable[[], None]]


@dataclass(frozen=True)
class Cutover:
    """Runs the steps of a commit, after the verification or if it is disabled. Reads no data of the source."""

    context: RunContext
    catalog: Catalog
    stop: StopToken

    def run(self) -> None:
        steps: list[Step] = [
            ("definitions prepared", self._prepare),
            *self._reversal_steps(),
            ("destination unblocked", self._unblock),
            ("destination writable", self._allow_writes),
            *self._balancer_steps(),
            ("indexes unique", self._convert),
        ]
        run = self.context.run
        for name, step in steps:
            self.stop.check()
            if name not in run.record.steps:
                step()
                run.update(steps=(*run.record.steps, name))
                self.context.observe(Point.STEP_DONE, name)

    def _prepare(self) -> None:
        for record in self.context.registry:
            self.stop.check()
            self.catalog.prepare(record.definition)

    def _reversal_steps(self) -> list[Step]:
        """Return the steps that prepare a reversal; none if the sync is not reversible.

        They run after the definitions are prepared, and before users may write.
        """
        if not self.context.run.record.options.reversible:
            return []
        # Step names are saved, so they must never change.
        return [("way back prepared", self._prepare_reversal)]

    def _prepare_reversal(self) -> None:
        self.context.run.update(reverse_start=prepare_reversal(self.context, self.stop))

    def _unblock(self) -> None:
        if self.context.run.record.options.blocks_destination:
            self.context.destination_block.lift()

    def _allow_writes(self) -> None:
        self.context.run.update(can_write=True)

    def _balancer_steps(self) -> list[Step]:
        if not any(each.sharded for each in self.context.balancers):
            return []
        return [("balancers put back", self._put_balancers_back)]

    def _put_balancers_back(self) -> None:
        for each in self.context.balancers:
            each.put_back()

    def _convert(self) -> None:
        for record in self.context.registry:
            self.stop.check()
            self.catalog.convert(record.definition)
