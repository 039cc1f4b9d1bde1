"""Runs many changes on a replica set, and waits only once until a majority of its members has all of them.

Changes that only the primary acknowledged can be rolled back if another member becomes primary. Every election gives
the primary a new election ID (`electionId` in the reply to `hello`), and the driver never returns to a primary with
an older election ID. So if the ID is the same before the changes and after a write that the majority acknowledged, one
primary has run all changes, and the majority has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.saved.fence import FENCES
from verifier.cluster.newest import newest_time
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken


def confirmed_together(context: RunContext, change: Callable[[], None], stop: StopToken) -> None:
    """Run `change`, and return when a majority of the destination's members has all its effects.

    The commands of `change` wait only for the primary (write concern 1). If another member becomes primary before all
    effects are confirmed, `change` runs again, so it must be idempotent. The destination must be a replica set. Raises
    the errors of `change`, OperationError (for example Superseded), the driver's errors, and `Cancelled`.
    """

    def election() -> object:
        return read(
            lambda: context.destination_client.admin.command("hello").get("electionId"), stop
        )

    run = partial(context.destination_writer.run, context.metadata.name)
    while True:
        stop.check()
        before = election()
        context.observe(Point.CHANGES_BEGIN, "")
        change()
        # Raises Superseded if another process has taken the run over during the changes.
        context.run.update()
        # This write waits for the majority although it changes nothing. The update of the run record cannot replace it,
        # because in a reversed sync, the run record is on the source.
        read(lambda: newest_time(run, FENCES), stop)
        if election() == before:
            return
