"""Saves the change events of a paused sync in the event spool once the oplog may become too short for the pause.

If the start option `eventSpool` is `always`, or events are already spooled, this does not wait for the oplog; with
`never`, the paused sync only watches the oplog. Before events are spooled, the paused engine writes nothing except
no-ops in the source's oplog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.oplog_watch import OplogWatch
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from verifier.runtime.tasks import SLOW_POLL, StopToken, TaskGroup, wait_until


def spool_while_paused(
    stopped: RunContext,
    prepare: Callable[[], RunContext],
    needed: threading.Event,
    stop: StopToken,
) -> None:
    """Watch the oplog of the source, and spool the change events once that is necessary, until stopped.

    `stopped` is the context of the paused engine; it is used for reading, and for no-ops in the source's oplog.
    `prepare` returns the context of a new engine, whose writes the destination accepts. This function sets `needed`
    once events must be spooled: if the oplog may become too short, the start option `eventSpool` is `always`, or events
    are already spooled. If `needed` is already set, spooling begins at once. With `never`, this function only watches
    the oplog. Returns immediately if the sync has not saved a position in the
    change stream yet, or needs no more events. Raises OperationError, the driver's errors, and `Cancelled`.
    """
    record = stopped.run.record
    position = record.position
    if position is None or record.phase.applied:
        return
    if not needed.is_set():
        _wait_until_needed(stopped, stop)
        needed.set()
    context = prepare()
    spooler = Spooler(context)
    spooler.start()
    spooler.load(position)
    with TaskGroup("pause", stop) as group:
        group.spawn("oplog", OplogWatch(context, spooler).run, group.stop)
        spooler.run(group.stop)


def _wait_until_needed(stopped: RunContext, stop: StopToken) -> None:
    """Wait until events must be spooled; return at once if an earlier engine has spooled some.

    If the start option `eventSpool` is `never`, wait until stopped.
    """
    if stopped.spool.is_saved(stop):
        return
    spooler = Spooler(stopped)
    watch = OplogWatch(stopped, spooler)
    with TaskGroup("paused", stop) as group:
        group.spawn("oplog", watch.run, group.stop)
        wait_until(lambda: watch.has_looked, group.stop, SLOW_POLL)
        if not spooler.is_active:
            stopped.progress.end_warning(WarningKind.PAUSE_UNSPOOLED)
        wait_until(lambda: spooler.is_active, group.stop, SLOW_POLL)
        group.stop.stop("spooling")
