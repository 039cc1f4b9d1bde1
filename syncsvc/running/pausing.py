"""Spools the change events of a paused sync in a thread, once the source's oplog may be too short for the pause."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from syncsvc import errors
from syncsvc.engine.pause import spool_while_paused
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from syncsvc.resuming import is_saved
from syncsvc.running.assembly import Assembly
from syncsvc.running.process import ProcessContext
from verifier.cluster import failures
from verifier.runtime.errors import describe, in_words_of
from verifier.runtime.tasks import SLOW_POLL, StopToken

_log = logging.getLogger(__name__)

# The wait before a retry is doubled after each failed attempt, up to this multiple of the first wait.
_MOST_BACKOFF = 8
_UNSPOOLED = (
    "During the pause, the oplog of the source cannot be watched, or its change events cannot be saved in the event "
    "spool. The process tries again; until it succeeds, the oplog must keep the events: remove the cause, or resume "
    "the sync before the oplog drops them."
)


class _Pause(NamedTuple):
    """The signals of the thread of one pause.

    `stop` stops the thread. The thread sets `needed` once the oplog may be too short for the pause, and `over` when
    the thread ends.
    """

    stop: StopToken
    needed: threading.Event
    over: threading.Event

    @classmethod
    def of(cls, process: ProcessContext) -> _Pause:
        return cls(StopToken(process.stop), threading.Event(), threading.Event())


class Pausing:
    """Starts and stops the thread that spools change events while a sync is paused.

    `engine` returns the context of the engine that was paused, and `at_rest` is set while that engine has no running
    thread. `fail` is called in the thread if the sync fails during the pause.
    """

    def __init__(
        self,
        process: ProcessContext,
        assembly: Assembly,
        engine: Callable[[], RunContext],
        at_rest: threading.Event,
        fail: Callable[[Exception], None],
    ) -> None:
        self._process = process
        self._assembly = assembly
        self._engine = engine
        self._at_rest = at_rest
        self._fail = fail
        self._pause = _Pause.of(process)
        self._pause.over.set()

    def begin(self) -> None:
        """Start the thread of a pause, which first waits until the engine and the thread of the previous pause end."""
        before = self._pause
        self._process.stop.release(before.stop)
        self._pause = _Pause.of(self._process)
        self._process.spawn("pause", partial(self._run, self._pause, before))

    def end(self, reason: str) -> None:
        """Stop the thread, without waiting for its end: see `has_ended`."""
        self._pause.stop.stop(reason)

    def has_ended(self) -> bool:
        """Wait briefly for the end of the thread; return whether it has ended."""
        return self._pause.over.wait(SLOW_POLL)

    def _run(self, pause: _Pause, before: _Pause) -> None:
        """Wait for the end of the engine and of the pause `before`; then spool events.

        Outermost function of a thread.
        """
        try:
            while not (self._at_rest.wait(SLOW_POLL) and before.over.wait(SLOW_POLL)):
                pause.stop.check()
            backoff = 1
            while not self._has_spooled(pause):
                pause.stop.sleep(self._process.tuning.pause_retry * backoff)
                backoff = min(2 * backoff, _MOST_BACKOFF)
        finally:
            self._process.progress.end_warning(WarningKind.PAUSE_UNSPOOLED)
            pause.over.set()

    def _has_spooled(self, pause: _Pause) -> bool:
        """Spool events while the sync is paused; return False if an error ended the spooling and the caller must retry.

        The sync fails, and nothing is retried, if another process owns the run, or if the kind of the error is one that
        is saved (see `is_saved`), for example because events are lost. Any other error becomes a warning, because a
        resume may still succeed. The warning ends once events are saved, or once the oplog is known to be long enough.
        Raises `Cancelled` when the pause ends.
        """
        try:
            spool_while_paused(
                self._engine(),
                lambda: self._assembly.next_context(pause.stop),
                pause.needed,
                pause.stop,
            )
        except Exception as error:
            kind, description = describe(in_words_of(errors.ALL, failures.named(error)))
            if not is_saved(kind) and kind is not errors.SUPERSEDED:
                self._warn(error, description)
                return False
            self._fail(error)
        return True

    def _warn(self, error: Exception, description: str) -> None:
        """Show a warning about the error; log the error if it is new."""
        progress, text = self._process.progress, f"{_UNSPOOLED} {description}"
        if progress.snapshot.warnings.get(WarningKind.PAUSE_UNSPOOLED) != text:
            _log.warning(
                "During the pause, the oplog of the source cannot be watched, or its change events cannot be saved in "
                "the event spool. The process tries again; until it succeeds, the oplog must keep the events: remove "
                "the cause, or resume the sync before the oplog drops them.",
                exc_info=error,
            )
        progress.warn(WarningKind.PAUSE_UNSPOOLED, text)
