"""Watches the source after a commit for user writes that are missing on the destination.

Unless the sync blocks the source, the source accepts writes after the commit. The writes of an application that was not
stopped are acknowledged, but no longer synced. The watch only reads, and shows such writes in a warning.

After a commit, the source is usually switched off while the daemon keeps running. Therefore, an error causes neither a
warning nor a failure: the watch logs one line, and retries.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime

import pymongo
from bson.timestamp import Timestamp

from syncsvc.engine.late_writes import LateWrites, names_of
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from syncsvc.state import State
from verifier.cluster import failures
from verifier.cluster.changes import ChangeReader, ChangeStream, StreamPage
from verifier.cluster.events import KeyEvent, parse_key_event, token_of
from verifier.cluster.namespace import Namespace, some_of
from verifier.cluster.times import position_after, token_time
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import Cancelled, StopToken

_log = logging.getLogger(__name__)

# The number of writes after which the watch ends: applications still use the source, so reading all their writes would
# only load both clusters.
_ENOUGH = 10_000
# How long a getMore waits for a change, in milliseconds.
_WAIT_MS = 1_000
# The pause before the next attempt after an error, and how long a cluster may take to answer that attempt, in seconds.
_PAUSE = 10.0
_PATIENCE = 5.0


class AfterCommit:
    """Watches the source of a committed sync, from the commit time `since` on.

    `run` belongs in a thread of its own, and `stop` ends it.
    """

    def __init__(self, context: RunContext, since: Timestamp, stop: StopToken) -> None:
        self._context = context
        self._since = since
        self._stop = stop
        self._late_writes = LateWrites(context, stop)
        # The collections whose changes require a query of the clusters, by their names on the source.
        self._unsure = self._late_writes.unsure()
        self._found: Counter[Namespace] = Counter()
        # The cluster times of the first and the last write that was found.
        self._first: Timestamp | None = None
        self._last: Timestamp | None = None
        self._fails = False

    def run(self) -> None:
        """Watch the source until enough writes are found or its oplog no longer has the next changes.

        The warning lasts until the watch is stopped; the next process finds the writes again. Raises `Cancelled` when
        stopped.
        """
        try:
            # `retry` would log each attempt and show a warning: the watch repeats failed calls itself.
            with impatient(0.0, in_total=0.0):
                self._watch()
        except Cancelled:
            self._context.progress.end_warning(WarningKind.WRITTEN_AFTER_COMMIT)
            raise

    def _watch(self) -> None:
        client, facts = self._context.source_client, self._context.source_facts
        namespaces = self._context.run.record.options.namespaces
        stream = ChangeStream(
            client, facts, keys_only=True, namespaces=namespaces, wait_ms=lambda: _WAIT_MS
        )
        start = position_after(self._since)
        reader = ChangeReader(stream, start, self._stop, awaits_oplog=False)
        pages, page = reader.pages(), None
        while self._context.run.record.state is State.COMMITTED and not self._has_enough:
            try:
                if self._fails:
                    # A missing server must not delay the end of the process: opening the stream has no time limit.
                    with pymongo.timeout(_PATIENCE):
                        client.admin.command("ping")
                # If the changes of a page could not be judged, judge them again.
                page = page or next(pages)
                self._judge(page)
                page, self._fails = None, False
            except Exception as error:
                if _is_lost(error):
                    _log.info(
                        "The watch for user writes to the source after the commit has ended: the source's oplog no "
                        "longer has the next changes to check. If applications may still write to the source, stop "
                        "them: later writes are not detected. Otherwise, you need not do anything.",
                        extra={"error": str(error)},
                    )
                    return
                self._report(error)
                if page is None:
                    pages = reader.pages()
                self._stop.sleep(_PAUSE)

    @property
    def _has_enough(self) -> bool:
        return self._found.total() >= _ENOUGH

    def _report(self, error: Exception) -> None:
        """Log the error; at the level DEBUG if the attempt before it has failed, too."""
        fields = {"error": failures.text_of(error)}
        if self._fails:
            _log.debug(
                "The watch for user writes to the source is still interrupted.", extra=fields
            )
        else:
            _log.info(
                "The watch for user writes to the source after the commit is interrupted, because a call to a cluster "
                "failed. It is retried. You need not do anything if you have switched off the source.",
                extra=fields,
            )
        self._fails = True

    def _judge(self, page: StreamPage) -> None:
        """Add the late writes of a page to those found so far, and show them all in the warning."""
        timed = [
            (each, token_time(token_of(raw)))
            for raw in page.events
            # DDL does not count: operators drop, rename and change collections when they retire the old source, and the
            # destination loses no data.
            if isinstance(each := parse_key_event(bytes(raw)), KeyEvent)
        ]
        changes = [each for each, _ in timed]
        found = self._late_writes.count(self._unsure, changes, page.source_time)
        if not found:
            return
        times = [time for each, time in timed if names_of([each]) & found.keys()]
        self._found += found
        self._first, self._last = self._first or times[0], times[-1]
        self._context.progress.warn(WarningKind.WRITTEN_AFTER_COMMIT, self._text())

    def _text(self) -> str:
        record = self._context.run.record
        assert self._first is not None and self._last is not None
        return warning_of((record.source, record.destination), self._found, self._first, self._last)


def warning_of(
    names: tuple[str, str], found: Counter[Namespace], first: Timestamp, last: Timestamp
) -> str:
    """Return the warning about writes that reached the source after the commit.

    `names` are the names of the source and the destination. `found` are the numbers of writes, at least one.
    """
    source, destination = names
    since = f"Timestamp({{t: {first.time}, i: {first.inc}}})"
    return (
        f"After the commit, {source} (the old source) accepted user writes that are not on {destination}: at least "
        f"{found.total()}, in {some_of(found)}; the first at {_shown(first)}, the last at {_shown(last)}. Stop the "
        f"applications that write to {source}. Then list the changes since {since}, and compare each document on both "
        f"clusters before you correct it on {destination}, which may have a newer version: see 'Writes reached the "
        "source after the commit' in docs/howto/troubleshoot."
    )


def _shown(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_lost(error: Exception) -> bool:
    return isinstance(error, OperationError) and error.kind == failures.OPLOG_WINDOW_EXCEEDED
