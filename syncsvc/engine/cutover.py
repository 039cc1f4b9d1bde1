"""What commit starts: small steps in a fixed order, each safe to repeat, each recorded when done.

A restart goes on at the first step that is not recorded. The destination is unblocked before it may be written, and
new duplicates are refused before that; making indexes unique can take long, and comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncsvc.engine.catalog import Catalog
from syncsvc.engine.observe import Observer, Point
from syncsvc.engine.writeblock import set_write_block
from syncsvc.options import WriteBlocking
from syncsvc.store import Registry, RunStore
from syncsvc.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

Step = tuple[str, Callable[[], None]]


@dataclass(frozen=True)
class Cutover:
    """The steps after the verdict. Nothing of the source is read any more."""

    catalog: Catalog
    registry: Registry
    run_store: RunStore
    writer: ClusterWriter
    observe: Observer
    stop: StopToken

    def run(self) -> None:
        steps: list[Step] = [
            ("definitions prepared", self._prepare),
            ("destination unblocked", self._unblock),
            ("destination writable", self._allow_writes),
            ("indexes unique", self._convert),
        ]
        for name, step in steps:
            self.stop.check()
            if name not in self.run_store.record.steps:
                step()
                self.run_store.update(steps=(*self.run_store.record.steps, name))
                self.observe(Point.STEP_DONE, name)

    def _prepare(self) -> None:
        for record in self.registry:
            self.stop.check()
            self.catalog.prepare(record.definition)

    def _unblock(self) -> None:
        if self.run_store.record.options.write_blocking is not WriteBlocking.NONE:
            set_write_block(self.writer, blocked=False)

    def _allow_writes(self) -> None:
        self.run_store.update(can_write=True)

    def _convert(self) -> None:
        for record in self.registry:
            self.stop.check()
            self.catalog.convert(record.definition)
