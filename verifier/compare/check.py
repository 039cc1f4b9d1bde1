"""Runs a check from its beginning to its verdict: generations of comparisons, while both change streams are read.

The start positions of the change streams are saved before anything is listed or read. While users write, a difference
is not a failure: the next generation compares it again. When users have stopped writing (`writesOff`, or the commit of
a sync), both streams are read up to this end of user writes. One more generation compares the last changed documents.
Differences are then compared again, with pauses, until the grace period is over, because a sync tool may still be
catching up. If a difference remains, the verdict is FAILED.

The subject of the check can move the end of user writes to a later time (`Subject.later_end`), because it has repaired
differences or users still write. Then both streams are read up to the new end. All definitions and numbers of
documents, and the documents that differed or changed, are compared once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from math import ceil
from time import monotonic, time
from typing import Any

from bson.timestamp import Timestamp

from verifier.cluster import rawbson
from verifier.cluster.changes import ChangeStream, start_position
from verifier.cluster.cluster import Cluster
from verifier.cluster.note import append_note
from verifier.cluster.quiet import is_quiet
from verifier.cluster.reading import read
from verifier.cluster.times import Position
from verifier.compare.amounts import Tally
from verifier.compare.change_source import ChangeSource
from verifier.compare.check_progress import Verdict
from verifier.compare.context import CheckContext, Sides
from verifier.compare.errors import NOTHING_TO_COMPARE
from verifier.compare.feed import Feed
from verifier.compare.figures import Figures
from verifier.compare.generation import Generation
from verifier.compare.points import Point
from verifier.compare.rechecks import Rechecks
from verifier.compare.record import (
    CheckProcess,
    CheckRecord,
    Request,
    SentCommand,
    Side,
    SideRecord,
)
from verifier.compare.recorder import Recorder
from verifier.compare.scope import NamespacePair
from verifier.compare.store import CheckStore
from verifier.compare.subject import Subject
from verifier.compare.tuning import CheckTuning
from verifier.compare.verdict import NAMED, verdict_of
from verifier.runtime.errors import OperationError
from verifier.runtime.observer import Observer
from verifier.runtime.tasks import StopToken, TaskGroup, wait_until

_log = logging.getLogger(__name__)

# The number of recent generations whose durations are reported.
_RECENT = 10
# The longest pause after a generation, as a multiple of the generation's duration. A `tuning.most_pause` that is longer
# applies instead.
_MOST_PAUSES = 10
# The longest pause before changed documents are compared again in the check of a sync, in seconds. A sync cannot commit
# while changed documents wait for long.
_MOST_PAUSE_IN_SYNC = 5.0
# The maximum number of characters of a filter that a note quotes.
_MOST_SHOWN = 300


def begin(
    source: Cluster,
    destination: Cluster,
    request: Request,
    store: CheckStore,
    stop: StopToken,
    read_from: Position | None = None,
    commands: tuple[SentCommand, ...] = (),
    processes: tuple[CheckProcess, ...] = (),
) -> None:
    """Save a new check in the store, in place of an older check. A `Check` can then run the new check.

    The check reads both change streams from now on; if `read_from` is given, it reads that of the source from this
    earlier position. `commands` and `processes` are saved in the new record. Raises OperationError IncompatibleMetadata
    if this version cannot read the older check, the errors of a save (see CheckStore), the driver's errors, and
    `Cancelled`.
    """

    def now(cluster: Cluster) -> SideRecord:
        stream = ChangeStream(cluster.client, cluster.facts, keys_only=True)
        return SideRecord(read(lambda: start_position(stream), stop))

    store.begin(
        CheckRecord(
            owner="",
            identities=(source.identity, destination.identity),
            request=request,
            started=time(),
            source=now(source) if read_from is None else SideRecord(read_from),
            destination=now(destination),
            notes=tuple(_left_out(request)),
            commands=commands,
            processes=processes,
        )
    )


def _left_out(request: Request) -> Iterator[str]:
    """Yield a note for each query of the request that excludes documents, because the verdict does not cover them."""
    if request.document_filter is not None:
        text = _shown(request.document_filter)
        yield f"Only documents that match the filter {text} were compared."
    for name, query in request.source_filters.queries.items():
        yield (
            f"{name}: the destination must have only the documents of the source that match {_shown(query)}; "
            "other documents of the source were not compared."
        )


def _shown(query: bytes) -> str:
    text = str(rawbson.decode(query))
    return f"{text[:_MOST_SHOWN]}..." if len(text) > _MOST_SHOWN else text


class Check:
    """A check that continues from its saved state in the store.

    Once all changes up to the end of user writes are read, differences are compared again during a grace period of
    `grace` seconds, unless the oplogs prove that no user data was written for that long. If differences remain, the
    verdict is FAILED. The change events of the source come from `feed`, which the constructor opens. If `feed` is None,
    the check reads the events itself.
    """

    def __init__(
        self,
        subject: Subject,
        sides: Sides,
        store: CheckStore,
        grace: float,
        observe: Observer,
        stop: StopToken,
        feed: Feed | None = None,
    ) -> None:
        self._subject = subject
        self._sides = sides
        self._tuning = sides.tuning
        self._store = store
        self._grace = grace
        self._observe = observe
        self._stop = stop
        self._rechecks = Rechecks(store, sides.tuning.remembered)
        self._context = CheckContext(subject, sides, store, self._rechecks, observe)
        self._feed = feed
        self._changes: dict[Side, ChangeSource] = {}
        self._pause = self._tuning.least_pause
        # Times of the monotonic clock: when the current generation began (None if an earlier process began it), and
        # when this process began its first generation after all changes up to the end of user writes were read. A
        # restart of the process, or a later end of user writes, restarts the grace period.
        self._began_at: float | None = None
        self._grace_since: float | None = None
        self.figures = Figures(store)
        # The cluster times up to which the current generation covers changes; empty if an earlier process began it.
        self._covered: dict[Side, Timestamp] = {}
        if feed is not None:
            feed.open(store, self._rechecks)

    def run(self) -> Verdict:
        """Run the check; save and return its verdict.

        Raises OperationError if the check cannot be completed, the driver's errors, and `Cancelled` when stopped. If
        several threads fail, their errors are raised as a BaseExceptionGroup.
        """
        with TaskGroup("check", self._stop) as group:
            if self._feed is not None:
                # List collections only after the feed delivers events; otherwise, changes in between would be missed.
                wait_until(_time_is_known(self._feed), group.stop)
            pairs = self._subject.pairs()
            self._observe(Point.LISTED, "")
            self._check_selection(pairs)
            self._rechecks.resume()
            self._note_changes(group)
            verdict = self._generations(pairs, group.stop)
            group.stop.stop("the verdict")
        return verdict

    def _note_changes(self, group: TaskGroup) -> None:
        for side in Side:
            if side is Side.SOURCE and self._feed is not None:
                self._changes[side] = self._feed
            else:
                recorder = Recorder(self._context, side, group.stop)
                self._changes[side] = recorder
                group.spawn(side.value, recorder.run)
        self.figures.sources.update(self._changes)

    def no_more_writes(
        self, source_end: Timestamp | None = None, command: SentCommand | None = None
    ) -> None:
        """Save that users have stopped writing to both clusters. The check then compares all earlier writes, and ends.

        `source_end` is the cluster time of the last possible user write to the source; None means now. `command` is
        saved with the record of the check. Appends a no-op to the oplog of the destination, to learn its cluster time;
        if `source_end` is None, also to the oplog of the source. Raises OperationError Superseded if another process
        has taken over the check, the errors of a save (see CheckStore), the driver's errors, and `Cancelled`.
        """
        source = source_end or append_note(self._sides.source.client, self._stop)
        destination = append_note(self._sides.destination.client, self._stop)
        self._store.set_ends(source, destination, command)
        self._observe(Point.WRITES_OFF, "")

    def _check_selection(self, pairs: set[NamespacePair]) -> None:
        """Raise OperationError NothingToCompare if the filter includes only certain namespaces, and `pairs` is empty.

        `pairs` are the selected collections and views that exist. Without the error, users would mistake the verdict of
        an empty check for a verdict on their namespaces. For the same reason, add a note for each name that the request
        includes, or contains a query for, if this name is not among `pairs`.

        A no-op once generation 0 is planned: an earlier process has made these checks, and collections may have been
        dropped since then.
        """
        record = self._store.record
        if record.planned or record.generation:
            return
        request, scope = record.request, record.request.scope
        if scope.namespaces.include and not pairs:
            raise OperationError(
                NOTHING_TO_COMPARE, "No collection or view of either cluster is selected."
            )
        for name in scope.absent(pair.source for pair in pairs):
            self._store.add_note(
                f"{name} was selected, but when the check began, it existed on neither cluster, or the namespace "
                "filter left out all of it. So it was not compared, unless it was created later."
            )
        for each in request.source_filters.queries.keys() - {pair.source for pair in pairs}:
            self._store.add_note(
                f"{each} is named in documentFilter, but when the check began, the collection existed on neither "
                "cluster, or the namespace filter excluded it. So it was not compared, unless it was created later."
            )

    def _generations(self, pairs: set[NamespacePair], stop: StopToken) -> Verdict:
        for each in self._changes.values():
            wait_until(_time_is_known(each), stop)
        new: set[NamespacePair] = set()
        while True:
            compare_all = False
            self._run_generation(pairs, new, stop)
            record = self._store.record
            if record.last:
                differs = self._found_any()
                if differs and not self._grace_is_over():
                    stop.sleep(self._tuning.least_pause)
                else:
                    end = self._subject.later_end(differs)
                    if end is None:
                        break
                    self.no_more_writes(end)
                    wait_until(self._drained, stop)
                    compare_all, self._grace_since = True, None
            else:
                self._wait_for_work(stop)
            before = pairs
            if self._begin_next(compare_all):
                pairs = self._subject.pairs()
            new = pairs - before
        return self._end()

    def _grace_is_over(self) -> bool:
        """Return whether the current generation began after the grace period, or no grace period is needed.

        No grace period is needed if no user data was written for that long. Return False if an earlier process began
        the generation.
        """
        if self._began_at is None or self._grace_since is None:
            return False
        return self._began_at - self._grace_since >= self._grace or self._was_quiet()

    def _was_quiet(self) -> bool:
        """Return whether the oplogs show no write of user data since one grace period before the end of user writes.

        This assumes that a sync tool is never behind by more than the grace period. So if users and the sync tool have
        written nothing to either cluster for that long, the sync tool has applied everything. Return False without
        proof, as on a sharded cluster (see `is_quiet`), and in a sync (`feed` is set), because a sync may be further
        behind.
        """
        record, sides = self._store.record, self._sides
        if self._feed is not None or record.source.end is None or record.destination.end is None:
            return False
        ends = (sides.source, record.source.end), (sides.destination, record.destination.end)
        # Ends are rounded down to seconds: add one, so that the period is never too short.
        seconds = ceil(self._grace) + 1
        return all(
            is_quiet(cluster.client, Timestamp(max(end.time - seconds, 0), 0))
            for cluster, end in ends
        )

    def _run_generation(
        self, pairs: set[NamespacePair], new: set[NamespacePair], stop: StopToken
    ) -> None:
        """Run the current generation, unless it is complete already, and save that it is complete.

        Then count its mismatches, set the pause before the next generation, and drop the saved state of generations
        before the previous one. `pairs` are the namespaces to compare. `new` are the pairs that did not exist in the
        previous generation.
        """
        if not self._store.record.done:
            began = monotonic()
            generation = self._generation(pairs, new, stop)
            self.figures.generation = generation
            generation.run()
            self._observe(Point.GENERATION_DONE, str(self._store.record.generation))
            self._save_done(generation.tally, monotonic() - began)
        found = self._store.mismatch_counts()
        same, self.figures.mismatches = found == self.figures.mismatches, found
        self._pause = next_pause(self._pause, same, self._last_duration, self._tuning)
        self._store.drop_older()

    def _generation(
        self, pairs: set[NamespacePair], new: set[NamespacePair], stop: StopToken
    ) -> Generation:
        not_before = (
            self._changes[Side.SOURCE].newest,
            self._changes[Side.DESTINATION].newest,
        )
        return Generation(self._context, pairs, new, not_before, stop)

    def _save_done(self, tally: Tally, seconds: float) -> None:
        record, amounts = self._store.record, tally.amounts
        changes: dict[str, Any] = {"first": amounts}
        if record.generation == 0:
            self.figures.namespaces = tally.namespaces
            self._store.save_compared(tally.namespaces)
            changes["first_ended"] = time()
        else:
            recent = (*record.recheck_seconds, round(seconds, 3))[-_RECENT:]
            changes = {
                "rechecked": record.rechecked + amounts.documents,
                "recheck_seconds": recent,
            }
        self._store.update(done=True, **changes)
        for side, until in self._covered.items():
            self._store.update_side(side, rechecked=until)
        self.figures.rechecked = self._covered
        _log.info(
            "A generation (one pass) of the check is complete.",
            extra={"generation": record.generation, "documents": amounts.documents},
        )

    def _wait_for_work(self, stop: StopToken) -> None:
        """Wait until the next generation is due.

        The generation is due at once if all changes up to the end of user writes were read. Otherwise, it is due after
        a pause if documents have changed or mismatches are left, and the destination is close enough to the source. If
        the generations find the same numbers of mismatches, the pause before these are compared again grows. Raises
        `Cancelled` when stopped.
        """
        began = monotonic()
        in_sync = self._feed is not None
        least = pause_after_changes(self._last_duration, self._found_any(), in_sync, self._tuning)

        def due() -> bool:
            self._note_rechecked()
            rested = monotonic() - began
            changed = self._rechecks.of_changes and rested > least
            some = changed or self._found_any() and rested > self._pause
            return (
                self._drained()
                or some
                and self._subject.is_settled(self._changes[Side.DESTINATION].position.time)
            )

        wait_until(due, stop)

    def _note_rechecked(self) -> None:
        """Set the figure `rechecked` to the time up to which changes are read, if no changed document awaits a recheck.

        Call this only between generations.
        """
        # Read the positions first: changes that are saved in the meantime are newer.
        read_until = self._read_until()
        if not self._rechecks.of_changes:
            self.figures.rechecked = read_until

    def _read_until(self) -> dict[Side, Timestamp]:
        return {side: each.position.time for side, each in self._changes.items()}

    def _begin_next(self, compare_all: bool) -> bool:
        """Save that the next generation begins. Return whether the collections must be listed again before it runs.

        The new generation compares all definitions and numbers of documents if `compare_all` is true, or if it is the
        first generation after all changes up to the end of user writes were read.
        """
        record = self._store.record
        becomes_last = compare_all or self._drained() and not record.last
        changes: dict[str, Any] = {}
        if becomes_last:
            changes = {"last_from": record.generation + 1}
        self.figures.between_generations()
        self._covered = self._read_until()
        others = self._rechecks.begin_next(planned=False, done=False, **changes)
        self._began_at = monotonic()
        if self._store.record.last and self._grace_since is None:
            self._grace_since = self._began_at
        self._observe(Point.GENERATION_BEGUN, str(record.generation + 1))
        return becomes_last or others

    def _drained(self) -> bool:
        return all(each.drained for each in self._changes.values())

    @property
    def _last_duration(self) -> float:
        """Return the duration of the last generation that compared documents again, in seconds; 0 if there was none."""
        return sum(self._store.record.recheck_seconds[-1:])

    def _found_any(self) -> bool:
        return self.figures.mismatches.are_some

    def _end(self) -> Verdict:
        examples = [
            *(each.mismatch for each in self._store.document_mismatches(None, NAMED, 0)),
            *(each.mismatch for each in self._store.definition_mismatches(None, NAMED)),
        ]
        verdict = verdict_of(self.figures.mismatches, examples)
        self._store.update(verdict=verdict, ended=time())
        self._observe(Point.VERDICT_SAVED, verdict.outcome.value)
        return verdict


def next_pause(before: float, same: bool, duration: float, tuning: CheckTuning) -> float:
    """Return the pause after a generation, in seconds; `tuning.least_pause` unless `same` is true.

    `same` says whether the numbers of mismatches are the same as after the previous generation. If so, the pause is
    twice the previous pause, `before`, but at most `tuning.most_pause`, or ten times `duration` (of the generation) if
    that is longer, because each generation saves all mismatches again.
    """
    if not same:
        return tuning.least_pause
    return min(2 * before, max(tuning.most_pause, _MOST_PAUSES * duration))


def pause_after_changes(
    duration: float, mismatches: bool, in_sync: bool, tuning: CheckTuning
) -> float:
    """Return the least pause before a generation that compares changed documents, in seconds.

    Without mismatches, this is `tuning.least_pause`. With mismatches, the pause is as long as the previous generation
    (`duration`), because the next generation compares and saves all mismatches again, too. It is then limited to
    `tuning.most_pause`, or to five seconds in a sync, but never shorter than `tuning.least_pause`.
    """
    if not mismatches:
        return tuning.least_pause
    most = _MOST_PAUSE_IN_SYNC if in_sync else tuning.most_pause
    return max(tuning.least_pause, min(most, duration))


def _time_is_known(changes: ChangeSource) -> Callable[[], bool]:
    return lambda: changes.newest is not None
