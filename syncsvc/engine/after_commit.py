"""Watches the source after a commit for user writes that are missing on the destination.

Unless the sync blocks the source, the source accepts writes after the commit. The writes of an application that was not
stopped are acknowledged, but no longer synced. The watch shows such writes in a warning, but does not apply them. It
begins when users may write to the destination. It saves what it has found, so that it continues after a restart.

After a commit, the source is usually switched off while the daemon keeps running. Therefore, an unreachable source
causes no warning: the watch logs one line, and retries. Other errors cause a warning, and are retried, too. No error of
the watch fails the sync.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import pymongo
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc import errors
from syncsvc.engine.late_writes import LateWrites, names_of
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.late_findings import LateFindings
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import RunRecord
from syncsvc.source.oplog import read_oplog
from syncsvc.state import State
from verifier.cluster import failures
from verifier.cluster.changes import (
    EVENTS_A_PAGE,
    ChangeReader,
    ChangeStream,
    StreamPage,
    start_position,
)
from verifier.cluster.document_filters import DOCUMENT_FILTER_FAILED
from verifier.cluster.events import KeyEvent, parse_key_event, token_of
from verifier.cluster.namespace import Namespace, some_of
from verifier.cluster.times import Position, position_after, seconds_between, token_time
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.quantities import utc_text
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import SLOW_POLL, Cancelled, StopToken, wait_until

_log = logging.getLogger(__name__)

# The watch ends after this many found writes, or this many seconds: by the source's cluster time since the commit, or
# by the clock since this process began to watch. If applications still use the source, reading all their writes would
# only load both clusters.
_ENOUGH = 10_000
_LONGEST = 24 * 3600
# The pause after a page of changes that was not full, in seconds. Without it, a busy source would send each change by
# itself.
_INTERVAL = 1.0
# The least time between two saves: of new findings, and of only a new position. In seconds.
_RENEW_AFTER = 5.0
_SAVE_AFTER = 600.0
# The pauses before the next attempt after an error: if no error since the last success requires a warning (an
# unreachable server requires none), and otherwise. How long the next attempt waits for an answer, and how long a save
# is retried. All in seconds.
_PAUSE = 10.0
_LONG_PAUSE = 30.0
_PATIENCE = 5.0

_SECTION = "see 'Writes reached the source after the commit' in docs/howto/troubleshoot"


def watch_source(context: RunContext, stop: StopToken) -> None:
    """Wait until users may write to the destination, then watch the source from the commit time on.

    The watch ends when enough writes are found or a day has passed. Its warnings last until `stop` is set or the sync
    is no longer COMMITTING or COMMITTED, and appear again after a restart. If this sync has blocked the source, or an
    earlier version of syncsvc committed the sync, nothing is watched. Raises `Cancelled` when stopped, or if another
    process has taken the sync over.
    """
    wait_until(lambda: context.run.record.can_write, stop, SLOW_POLL)
    record = context.run.record
    if record.late_findings is None or record.commit_time is None:
        return
    try:
        _Watch(context, stop, record.late_findings, record.commit_time).run()
    finally:
        for kind in (WarningKind.WRITTEN_AFTER_COMMIT, WarningKind.UNCHECKED_AFTER_COMMIT):
            context.progress.end_warning(kind)


class _Watch:
    """The watch of the source after the commit whose commit time is `since`. `findings` are those saved so far."""

    def __init__(
        self, context: RunContext, stop: StopToken, findings: LateFindings, since: Timestamp
    ) -> None:
        self._context = context
        self._stop = stop
        self._since = since
        self._late_writes = LateWrites(context, stop)
        # The collections whose changes require a query of the clusters, by their names on the source.
        self._unsure: Mapping[Namespace, CollectionRecord] = {}
        # The newest findings, the findings that the warnings show, and the saved findings.
        self._findings = self._shown = self._saved = findings
        self._began_at = self._saved_at = monotonic()
        self._reader: ChangeReader | None = None
        self._pages: Iterator[StreamPage] = iter(())
        # The page being checked, which is checked again after an error; None if the next page must be read first.
        self._page: StreamPage | None = None
        # Whether the reader has read a page.
        self._has_read = False
        # Whether the oplog no longer has the next changes.
        self._is_lost = False
        # Whether the watch was interrupted since the last successful attempt by an error that requires no warning; and
        # why changes cannot be checked now, if that requires a warning.
        self._fails = False
        self._problem: str | None = None

    def run(self) -> None:
        """Watch until enough writes are found or a day has passed; then only keep the warnings about them up to date.

        Return when the sync has failed, is reversed or is reset. Raises `Cancelled` when stopped, or if another process
        has taken the sync over.
        """
        while _is_watched(self._context.run.record):
            # Another thread may end the warnings late, after a resume: show them again.
            self._show()
            if self._saved.ended:
                self._stop.sleep(_INTERVAL)
                continue
            if monotonic() > self._began_at + _LONGEST:
                # The source may have been unreachable all day.
                self._findings = replace(self._findings, ended=True)
            if not self._findings.ended:
                self._attempt()
            self._stop.check()
            self._save()

    def _attempt(self) -> None:
        """Check the next page of changes. Handle every error, so that the watch does not fail the sync."""
        try:
            # `retry` would log each attempt and show a warning: the watch repeats failed calls itself.
            with impatient(0.0, in_total=0.0):
                self._check_page()
        except Exception as error:
            self._report(error)
            self._show()
            self._stop.sleep(_PAUSE if self._problem is None else _LONG_PAUSE)
        else:
            self._fails, self._problem = False, None

    def _check_page(self) -> None:
        """Read the next page of changes, unless there is an unchecked one, and check it."""
        if self._fails:
            # A missing server must not delay the end of the process: opening the stream has no time limit.
            with pymongo.timeout(_PATIENCE):
                self._context.source_client.admin.command("ping")
        if self._reader is None:
            self._open()
        page = self._page = self._page or next(self._pages)
        self._has_read = True
        self._findings = self._checked(page)
        self._page = None
        if len(page.events) < EVENTS_A_PAGE and not self._findings.ended:
            self._stop.sleep(_INTERVAL)

    def _open(self) -> None:
        """Open the change stream at the position of the findings, or later if the oplog no longer has that position."""
        context = self._context
        namespaces = context.run.record.options.namespaces
        stream = ChangeStream(
            context.source_client, context.source_facts, keys_only=True, namespaces=namespaces
        )
        if self._is_lost:
            self._findings = self._findings.resumed_at(self._later_position(stream))
            self._is_lost = False
        self._unsure = self._late_writes.unsure()
        position = self._findings.position
        self._reader = ChangeReader(stream, position, self._stop, awaits_oplog=False)
        self._pages, self._has_read = self._reader.pages(), False

    def _later_position(self, stream: ChangeStream) -> Position:
        """Return the position after the oldest entry of the oplog, to continue there after changes were lost.

        Return the current position of the stream if the oplog cannot be read, or if that entry is not newer than the
        position of the findings.
        """
        oplog = None
        with suppress(OperationFailure):
            oplog = read_oplog(stream.client)
        if oplog is None or oplog.oldest <= self._findings.position.time:
            return start_position(stream)
        return position_after(oplog.oldest)

    def _checked(self, page: StreamPage) -> LateFindings:
        """Return the findings with the position after the page, and with its user writes that the destination lacks."""
        timed = [
            (each, token_time(token_of(raw)))
            for raw in page.events
            # DDL does not count: operators drop, rename and change collections when they retire the old source, and the
            # destination loses no data.
            if isinstance(each := parse_key_event(bytes(raw)), KeyEvent)
        ]
        findings = replace(self._findings, position=page.position)
        found = self._count([each for each, _ in timed], page.source_time)
        if found:
            times = [time for each, time in timed if names_of([each]) & found.keys()]
            findings = findings.with_writes(found, times)
        is_old = seconds_between(self._since, page.position.time) >= _LONGEST
        return replace(findings, ended=findings.writes >= _ENOUGH or is_old)

    def _count(self, changes: list[KeyEvent], now: Timestamp) -> Counter[Namespace]:
        try:
            return self._late_writes.count(self._unsure, changes, now)
        except OperationError as error:
            if error.kind is not DOCUMENT_FILTER_FAILED:
                raise
            # A document filter may fail because of the new documents. Then count all changes of filtered collections.
            filters = self._context.document_filters
            unsure = {name: each for name, each in self._unsure.items() if name not in filters}
            return self._late_writes.count(unsure, changes, now)

    def _save(self) -> None:
        """Save the findings, and show them in the warnings from now on; do nothing if this was done recently.

        The last findings of the watch are always saved at once. A later call repeats a failed save. Raises `Cancelled`
        if the source is no longer watched, or if another process has taken the sync over and now watches the source
        itself.
        """
        is_new = replace(self._findings, position=self._saved.position) != self._saved
        age = monotonic() - self._saved_at
        if not self._findings.ended and age < (_RENEW_AFTER if is_new else _SAVE_AFTER):
            return
        self._shown, self._saved_at = self._findings, monotonic()
        self._show()
        try:
            with impatient(_PATIENCE, in_total=_PATIENCE):
                run = self._context.run
                run.update_unless(_refuse_unwatched, late_findings=self._findings)
        except Exception as error:  # no error of the watch may fail the sync
            if _is(errors.SUPERSEDED, error):
                raise Cancelled("another process has taken the sync over") from error
            _log.debug(
                "The findings of the watch for user writes to the source after the commit cannot be saved now. The "
                "save is retried.",
                extra={"error": failures.text_of(error)},
            )
            self._stop.sleep(_PAUSE)
            return
        self._saved = self._findings
        if self._saved.ended:
            _log.info(
                "The watch for user writes to the source after the commit has ended: a day has passed, or so many "
                "writes were found that their exact number does not matter. Later writes are not detected.",
                extra={"writes": self._saved.writes},
            )

    def _show(self) -> None:
        """Show the findings of the last attempt to save, and the current problem; end the warning of a past problem."""
        record, progress = self._context.run.record, self._context.progress
        names = record.source, record.destination
        if self._shown.writes:
            text = warning_of(names, self._shown)
            progress.warn(WarningKind.WRITTEN_AFTER_COMMIT, text)
        if self._shown.gap or self._problem:
            text = unchecked_warning(names, self._shown, self._problem)
            progress.warn(WarningKind.UNCHECKED_AFTER_COMMIT, text)
        else:
            progress.end_warning(WarningKind.UNCHECKED_AFTER_COMMIT)

    def _report(self, error: Exception) -> None:
        """Prepare the next attempt to read or check changes after an error.

        An error that requires a warning is saved for `_show`, and is logged only if there was no such error since the
        last successful attempt. A lost position in the oplog is not logged: if it is lost for good, the findings will
        contain a gap.
        """
        if _is(failures.OPLOG_WINDOW_EXCEEDED, error):
            # If an open stream has lost its position, opening it again shows whether the oplog has lost it, too.
            self._is_lost = not self._has_read
            self._reader = None
            return
        if self._page is None and self._reader is not None:
            # Keep the reader: it knows the form in which a server can send the next page.
            self._pages = self._reader.pages()
        if _is_of_connection(error):
            self._report_interruption(error)
        elif self._problem is None:
            _log.warning(
                "The watch for user writes to the source after the commit has failed, so new user writes are not "
                "detected now. The watch is retried.",
                exc_info=error,
            )
            self._problem = failures.text_of(error).rstrip(".")

    def _report_interruption(self, error: Exception) -> None:
        """Log the error: at the level INFO if it is the first interruption since the last success, else DEBUG."""
        checked = utc_text(self._findings.position.time.time)
        fields = {"error": failures.text_of(error), "checkedUpTo": checked}
        if self._fails:
            _log.debug(
                "The watch for user writes to the source is still interrupted.", extra=fields
            )
        else:
            _log.info(
                "The watch for user writes to the source after the commit is interrupted, because a call to a cluster "
                "failed. The watch is retried. You need not do anything if you have switched off the source.",
                extra=fields,
            )
        self._fails = True


def _is_watched(record: RunRecord) -> bool:
    """Return whether users may write to the destination, and the sync is COMMITTING or COMMITTED.

    Only then is the source watched: the sync no longer applies its changes.
    """
    return record.can_write and record.state in (State.COMMITTING, State.COMMITTED)


def _refuse_unwatched(record: RunRecord) -> None:
    """Raise `Cancelled` if the source is no longer watched: the findings must not be saved after a reversal."""
    if not _is_watched(record):
        raise Cancelled("the commit is over")


def warning_of(names: tuple[str, str], findings: LateFindings) -> str:
    """Return the warning about writes that reached the source after the commit.

    `names` are the names of the source and the destination. The findings must contain a write.
    """
    source, destination = names
    first, last = findings.first, findings.last
    assert first is not None and last is not None
    since = f"Timestamp({{t: {first.time}, i: {first.inc}}})"
    return (
        f"After the commit, {source} (the old source) accepted user writes that are not on {destination}: at least "
        f"{findings.writes}, in {some_of(findings.namespaces)}; the first at {utc_text(first.time)}, the last at "
        f"{utc_text(last.time)}. Stop the applications that make these writes. Then list the changes since {since}, "
        f"and compare each document on both clusters before you correct it on {destination}, which may have a newer "
        f"version: {_SECTION}."
    )


def unchecked_warning(names: tuple[str, str], findings: LateFindings, problem: str | None) -> str:
    """Return the warning that user writes to the source after the commit were not, or cannot be, checked.

    `names` are the names of the source and the destination. `problem` is the error because of which changes cannot be
    checked, or could not be checked until the watch ended. It is not None, or the findings have a gap.
    """
    source, destination = names
    parts, gap = [], findings.gap
    if gap is not None:
        begin, end = (utc_text(each.time) for each in gap)
        parts.append(
            f"User writes to {source} (the old source) after the commit, from {begin} to {end}, were not checked: its "
            "oplog no longer had all of them."
        )
    if problem is not None:
        checked = utc_text(findings.position.time.time)
        parts.append(
            f"User writes to {source} (the old source) after {checked} could not be checked: {problem}. The check "
            "has ended, because it has lasted for a day."
            if findings.ended
            else f"User writes to {source} (the old source) after the commit cannot be checked now: {problem}. The "
            "check is retried."
        )
    parts.append(
        f"If no application has written to {source} since the commit, you need not do anything. Otherwise, "
        f"{destination} lacks these writes: {_SECTION}."
    )
    return " ".join(parts)


def _is_of_connection(error: Exception) -> bool:
    """Return whether the error is transient, or means that a cursor is lost or that a cluster does not answer."""
    if failures.is_transient(error) or failures.is_cursor_lost(error):
        return True
    return _is(failures.CLUSTER_UNREACHABLE, error)


def _is(kind: ErrorKind, error: Exception) -> bool:
    return isinstance(error, OperationError) and error.kind is kind
