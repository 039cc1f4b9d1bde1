"""Watches the source's oplog while a sync reads the source.

Estimates how long the oplog still holds the entries that the sync needs. If that time may be too short, this module
makes the spooler save the change events, or warns. The sync fails once all members have dropped entries that it needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.run.context import RunContext
from syncsvc.figures import oplog_window
from syncsvc.figures.progress import WarningKind
from syncsvc.figures.spooling import assumed_left
from syncsvc.source.oplog import Oplog, read_oplog
from syncsvc.state import Phase, State
from verifier.cluster import failures
from verifier.cluster.changes import only_elsewhere
from verifier.cluster.note import append_note
from verifier.cluster.oplog_reach import reach
from verifier.cluster.times import seconds_between
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import Temporary, retry
from verifier.runtime.tasks import SLOW_POLL, Cancelled, StopToken

# For how long an observation of the oplog is used in the estimates, in seconds.
_COUNTS_FOR = 300.0

_READING = (
    *(Phase.REVERSING, Phase.INITIALIZING, Phase.COPYING, Phase.INDEXING),
    *(Phase.WITHDRAWING, Phase.APPLYING),
)
_ENLARGE = (
    "If the oplog drops entries before the sync reads them, the sync fails. To prevent this, enlarge the oplog on each "
    "member (replSetResizeOplog), or write less to the source."
)
_RESUME = (
    "If the oplog drops entries before the sync reads them, the sync fails. To prevent this, resume the sync, or "
    "enlarge the oplog on each member (replSetResizeOplog)."
)


class OplogWatch:
    """Watches the source's oplog for one run, in a thread alongside the phases that read the source.

    If the oplog cannot be read, because the source is sharded or its user lacks the privilege, only the age of the
    needed entries is known.
    """

    def __init__(self, context: RunContext, spooler: Spooler) -> None:
        self._context = context
        self._spooler = spooler
        self._looks: deque[oplog_window.Look] = deque()
        self._held_after: Callable[[], Timestamp | None] | None = None
        # Whether `run` has checked the oplog at least once without an error.
        self.has_looked = False

    def follow(self, held_after: Callable[[], Timestamp | None]) -> None:
        """Use `held_after`, instead of the saved position, to detect that the oplog has dropped needed entries.

        While the reader of the change stream is blocked, for example because all lanes are full, `held_after` must
        return the cluster time of the source from which the reader will continue. While the reader is not blocked,
        `held_after` must return None. The watch then does not look for lost entries: if there are any, the next read of
        the stream fails.
        """
        self._held_after = held_after

    def let_go(self) -> None:
        """Do not fail the sync if the oplog drops entries, until `follow` is called again.

        Call this when all events up to the commit are applied. A withdrawn commit calls `follow` again.
        """
        self._held_after = _nothing

    def run(self, stop: StopToken) -> None:
        """Watch the oplog until stopped, or until the sync no longer reads the source; then end its warnings.

        Raises OperationError OplogWindowExceeded if needed entries are lost, the driver's errors, and `Cancelled` when
        stopped. After an error, the warnings stay active.
        """
        try:
            self._keep_looking(stop)
        except Cancelled:
            self._forget()
            raise
        # The oplog is no longer needed, and no other code ends these warnings.
        self._forget()

    def _keep_looking(self, stop: StopToken) -> None:
        while self._context.run.record.phase in _READING:
            if self._context.run.record.position is None:
                stop.sleep(SLOW_POLL)
                continue
            self._look(stop)
            self.has_looked = True
            stop.sleep(self._context.tuning.oplog_interval)

    def _look(self, stop: StopToken) -> None:
        oplog = self._read(stop)
        if oplog is None:
            self._judge_unread(stop)
        else:
            self._update_estimates(oplog, self._held_elsewhere(oplog))

    def _judge_unread(self, stop: StopToken) -> None:
        """Decide from the age of the needed entries alone whether to spool events, because the oplog cannot be read."""
        if self._spooler.is_active or not self._spooler.is_allowed:
            return
        now = append_note(self._context.source_client, stop)
        age = float(seconds_between(self._saved(), now))
        self._spooler.judge(assumed_left(age), self._rest_seconds(age, None))

    def _rest_seconds(self, age: float, copy_left: float | None) -> float | None:
        """Return the seconds for which the sync still needs the oldest of its needed oplog entries; None if unknown.

        `age` is the current age of that entry, and `copy_left` the time until the copy ends (None if unknown), both in
        seconds. During change event application, the result assumes that applying the waiting events takes as long as
        writing them did. During a pause, the result is None, because the end of the pause is unknown.
        """
        record = self._context.run.record
        if record.state is State.PAUSED:
            return None
        return age if record.phase is Phase.APPLYING else copy_left

    def _read(self, stop: StopToken) -> Oplog | None:
        """Return the oplog; None, with a warning, if the user of the source may not read it.

        Returns None for a sharded source, too: its change stream reports when an oplog was too short.
        """
        progress = self._context.progress
        try:
            oplog = retry(lambda: read_oplog(self._context.source_client), _classify, stop)
        except OperationFailure as error:
            if not _is_refused(error):
                raise
            progress.set(oplog_seconds_left=None)
            progress.warn(
                WarningKind.OPLOG_UNKNOWN,
                "The oplog of the source cannot be read, so there is no warning before the oplog becomes too short. "
                f"Grant the role clusterMonitor to the user of the source. {failures.text_of(error)}.",
            )
            return None
        progress.end_warning(WarningKind.OPLOG_UNKNOWN)
        return oplog

    def _held_elsewhere(self, oplog: Oplog) -> str | None:
        """Return a warning if the oplog has lost entries that the sync needs, but another member may still have them.

        Return None if it has lost none. Raises OperationError OplogWindowExceeded if no member has them.
        """
        needed = self._needed()
        if needed is None or not oplog_window.is_lost(oplog, needed):
            return None
        elsewhere = only_elsewhere(
            self._context.run.record.source, reach(self._context.source_client, needed), needed
        )
        if elsewhere is not None:
            return f"{elsewhere.what}. {elsewhere.remedy}"
        # Other threads end only when their calls return, which may take long. Until then, this warning shows the
        # failure.
        self._warn_short(
            oplog, "the oplog has dropped entries that this sync needs, so the sync fails."
        )
        raise OperationError(
            failures.OPLOG_WINDOW_EXCEEDED,
            f"The sync needs the change events of the source from {_shown(needed)} on, but the oldest entry of the "
            f"source's oplog is from {_shown(oplog.oldest)}.",
        )

    def _needed(self) -> Timestamp | None:
        """Return the cluster time of the source after which oplog entries are needed.

        Return None while the change stream is being read: its next read fails if entries are lost. Also return None
        once no more entries are needed.
        """
        if self._spooler.is_active:
            return None
        # `held_after` must be called after the oplog was read: an older answer could be a time whose entries are no
        # longer needed.
        if self._held_after is None:
            return self._saved()
        spooled, held = self._spooled(), self._held_after()
        return None if held is None else max(held, spooled or held)

    def _saved(self) -> Timestamp:
        """Return the cluster time of the source after which a restarted process would need oplog entries."""
        spooled, position = self._spooled(), self._context.run.record.position
        assert position is not None
        return max(position.time, spooled or position.time)

    def _spooled(self) -> Timestamp | None:
        """Return the cluster time of the source up to which events are in the spool; None if the spool is empty.

        Call this before reading the saved position. Rows of the spool are deleted once a position after them is saved.
        If this happened between reading an older position and this call, the deleted events would seem to be needed
        from the oplog.
        """
        end = self._context.spool.end
        return None if end is None else end.time

    def _update_estimates(self, oplog: Oplog, elsewhere: str | None) -> None:
        progress = self._context.progress
        copying = self._context.run.record.phase is Phase.COPYING
        now = oplog_window.Look(monotonic(), oplog, self._copied() if copying else None)
        self._looks.append(now)
        while now.at - self._looks[0].at > _COUNTS_FOR:
            self._looks.popleft()
        left = oplog_window.seconds_left(self._looks, self._saved())
        progress.set(oplog_seconds_left=left)
        total = progress.snapshot.total_bytes if copying else None
        copy_left = oplog_window.copy_seconds_left(self._looks, total)
        if left is not None:
            age = float(seconds_between(self._saved(), oplog.newest))
            self._spooler.judge(left, self._rest_seconds(age, copy_left))
        self._warn(oplog, elsewhere or self._shortage(oplog, left, copy_left))

    def _copied(self) -> int:
        """Return the number of bytes that all instances have copied, according to the registry of this instance.

        Only the coordinator updates the registry during the copy, so in other instances the result does not grow.
        """
        return sum(each.copied for each in self._context.registry)

    def _shortage(self, oplog: Oplog, left: float | None, copy_left: float | None) -> str | None:
        """Return why the oplog is too short, as the end of a warning; None if there is no reason to warn.

        `left` is the time until the oplog drops entries that the sync needs, and `copy_left` the remaining time of the
        copy, both in seconds; None if unknown. While events are spooled, only lost entries are a reason.
        """
        warned = WarningKind.OPLOG_SHORT in self._context.progress.snapshot.warnings
        if oplog_window.is_lost(oplog, self._saved()):
            return (
                "the oplog has dropped entries that a restarted or paused sync would need. Do not restart the "
                "process, and do not pause or resume the sync, until this warning ends."
            )
        if left is None or self._spooler.is_active:
            return None
        forecast = oplog_window.warning(left, copy_left, warned)
        paused = self._context.run.record.state is State.PAUSED
        return None if forecast is None else f"{forecast} {_RESUME if paused else _ENLARGE}"

    def _warn(self, oplog: Oplog, text: str | None) -> None:
        """Begin or replace the warning about a short oplog, or end it if `text` is None."""
        if text is None:
            self._context.progress.end_warning(WarningKind.OPLOG_SHORT)
        else:
            self._warn_short(oplog, text)

    def _warn_short(self, oplog: Oplog, text: str) -> None:
        size = f"{oplog.limit / 1e6:.0f} MB"
        self._context.progress.warn(
            WarningKind.OPLOG_SHORT, f"The oplog of the source ({size}) is short: {text}"
        )

    def _forget(self) -> None:
        """End the warnings about the oplog, and mark the time for which it keeps the needed entries as unknown.

        Otherwise, outdated warnings would be shown when the oplog is no longer watched.
        """
        progress = self._context.progress
        progress.set(oplog_seconds_left=None)
        for kind in (WarningKind.OPLOG_UNKNOWN, WarningKind.OPLOG_SHORT):
            progress.end_warning(kind)


def _is_refused(error: BaseException) -> bool:
    """Return whether the error means that the user of the source may not read the oplog.

    A sync works without this privilege.
    """
    return failures.named_kind(error) is failures.NOT_AUTHORIZED or failures.is_refusal(error)


def _classify(error: BaseException) -> Temporary | None:
    return None if _is_refused(error) else failures.lost_cursor(error)


def _nothing() -> None:
    """Return None: the value of `held_after` when the sync needs no more oplog entries."""


def _shown(time: Timestamp) -> str:
    return time.as_datetime().isoformat()
