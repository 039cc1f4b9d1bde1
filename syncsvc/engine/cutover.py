"""What commit starts: small steps in a fixed order, each safe to repeat, each recorded when done.

A restart goes on at the first step that is not recorded. The destination is unblocked before it may be written, and
new duplicates are refused before that; making indexes unique can take long, and comes last.
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
    """The steps after the verdict. Nothing of the source is read any more."""

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
        """After all that the destination must hold before users write, and before they do."""
        if not self.context.run.record.options.reversible:
            return []
        # The steps are saved by these names, so a name cannot change.
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
