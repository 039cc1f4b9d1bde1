"""Reads the change stream of a whole cluster as pages of raw events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import Any, NamedTuple

from bson.timestamp import Timestamp
from pymongo.errors import NetworkTimeout, OperationFailure

from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client, name_of
from verifier.cluster.events import DATA_OPERATIONS, KEY_EVENT_FIELDS
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.features import (
    EXPANDED_EVENTS,
    MIGRATION_EVENTS,
    RAW_UPDATES,
    SPLIT_EVENTS,
    SYSTEM_EVENTS,
)
from verifier.cluster.filters import NamespaceFilter, condition
from verifier.cluster.namespace import BUCKETS_PREFIX
from verifier.cluster.note import ask_all_shards
from verifier.cluster.oplog_reach import Reach, reach
from verifier.cluster.rawcursor import Page, RawCursor, resilient_pages
from verifier.cluster.times import Position, end_of_second, next_time, passed_time, position_at
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import Temporary
from verifier.runtime.tasks import StopToken

# The most events in a page, unless another number is given.
EVENTS_A_PAGE = 5_000
# The value of `Form.window` after the first timeout, in seconds.
_FIRST_WINDOW = 60
# The codes with which a server says that an event or a page is too large to be sent.
_TOO_LARGE = (failures.BSON_OBJECT_TOO_LARGE, failures.EVENT_NOT_SPLITTABLE)


_OTHER_MEMBER = (
    "Another member may still have these changes: make a member with a long enough oplog the primary (by rs.stepDown() "
    "on the current primary, or by the member's priority), start the members that are down, or remove those that will "
    "not come back (rs.remove())."
)
_CONTINUES = (
    "The sync or check continues once the primary has these changes. If no member has them, it fails with "
    "OplogWindowExceeded."
)
_OTHER_SHARD = (
    "On each member of a shard, rs.printReplicationInfo() shows how far its oplog reaches back. If another member of "
    "the shard has a longer oplog, make that member the primary within ten minutes: the sync or check then continues. "
    "Otherwise it fails with OplogWindowExceeded."
)

_IF_GONE = (
    "If rs.printReplicationInfo() shows on every member that its oplog does not reach back far enough, the changes are "
    "lost."
)
_UNASKED_SHARDS = (
    "The other members of the shards were not asked: on each of them, rs.printReplicationInfo() shows how far its "
    "oplog reaches back. If one reaches back far enough, the changes are not lost: make it the primary of its shard."
)


class StreamPage(NamedTuple):
    """One page of a change stream: raw events in the order of the stream.

    A page may end between the fragments of an event.
    """

    events: list[memoryview]
    # The position in the stream after the last of these events.
    position: Position
    # The newest cluster time that the reader has seen. No event up to the end of the page is later.
    source_time: Timestamp


class _Step(NamedTuple):
    """The limits that a reader sets for the content of a page of a change stream.

    A page has at most `events` events, without their contents if `bare`. If `doublings` is not 0, each event is padded
    with 2 ** `doublings` bytes.
    """

    events: int
    bare: bool = False
    doublings: int = 0


# The steps in which a reader reduces its pages if a server cannot send a page. A server sends at most 16 MB. It fills a
# page up to this size, and then adds the resume token, which is twice as long as the last document key. So read fewer
# events first, then one event without its contents. The number of events that a mongos reads from a shard can only be
# limited by their size: of events with a padding of 8 MB, only one fits into a page. If the event and the token do not
# fit, the event's key is so large that a padding of 4 MB is enough.
_STEPS = (
    _Step(EVENTS_A_PAGE),
    _Step(500),
    _Step(50),
    _Step(5),
    _Step(1),
    _Step(1, bare=True),
    _Step(1, bare=True, doublings=23),
    _Step(1, bare=True, doublings=22),
)


@dataclass(frozen=True)
class Form:
    """The form in which a change stream is opened: the size of its pages, and the part of the oplog that it filters.

    A reader reopens the stream in another form if the server cannot send the next page, does not send it in time or
    cannot resume with the filter, and after an event `invalidate`. Later, it returns to the default form step by step.
    """

    # The index in `_STEPS` of the limits of the pages.
    step: int = 0
    # For how many seconds of the oplog after the position the filter of the stream applies; None if it always applies,
    # 0 if it does not apply. A server answers only when it has found enough events or has read the oplog to its end.
    # If the events that match are rare, this can take longer than the driver waits. The events after the window end
    # the page, and the stream is reopened there. If they do not match, the server sends only `_id` and `txnNumber`, and
    # the reader leaves them out: their collection may later get a name that matches, and be copied. A caller that got
    # only some of its earlier events could then undo changes that the copy already contains.
    window: int | None = None
    # Whether the stream continues after an event `invalidate`.
    invalidated: bool = False

    @property
    def page(self) -> _Step:
        return _STEPS[self.step]

    def smaller(self) -> Form | None:
        """Return the form with the next smaller pages; None if this form has the smallest pages."""
        return replace(self, step=self.step + 1) if self.step + 1 < len(_STEPS) else None

    def larger(self) -> Form:
        """Return the form with the next larger pages. This form must not have the largest pages (the first step)."""
        return replace(self, step=self.step - 1)

    def sooner(self) -> Form:
        """Return a form in which a server answers sooner; this form if there is none, because its filter is off.

        Call this after a read in this form has timed out.
        """
        return replace(self, window=_FIRST_WINDOW if self.window is None else self.window // 4)


@dataclass(frozen=True)
class ChangeStream:
    """The options of a change stream of a whole cluster."""

    client: Client
    facts: ClusterFacts
    # Request the oplog's own diff of each update. For replica sets only.
    raw_updates: bool = False
    # Request only the key of each changed document, and no contents; `parse_key_event` parses such events.
    keys_only: bool = False
    # Data events are limited to namespaces that match this filter. Events of buckets are not limited: the caller must
    # ignore the buckets of other collections. DDL events are not limited either, because a rename can give a collection
    # a name that matches. The caller must then read the whole collection: the stream has left out its earlier changes.
    namespaces: NamespaceFilter = NamespaceFilter()
    # Returns how long the next getMore waits for an event, in milliseconds. A no-op in the oplog does not end the wait.
    wait_ms: Callable[[], int] = lambda: 200
    # The most events in a page.
    page_events: int = EVENTS_A_PAGE

    def open(self, position: Position | None, form: Form = Form()) -> RawCursor:
        """Return a cursor over the events after `position`; over the events from now on if `position` is None.

        `form.invalidated` must be True if the token of `position` belongs to an event `invalidate`. With a
        `position`, the first command requests no events: servers close the connection if a first page is too large.
        """
        command = {"aggregate": 1, "pipeline": list(self._pipeline(position, form))}
        size = min(form.page.events, self.page_events)
        first = size if position is None else 0
        # Run a plain command, because the driver's watch() does not support every option.
        return RawCursor(
            self.client, "admin", command, size, await_ms=self.wait_ms, first_page=first
        )

    def _pipeline(self, position: Position | None, form: Form) -> Iterator[dict[str, Any]]:
        stage: dict[str, Any] = {"allChangesForCluster": True}
        if self.facts.reports_ddl:
            stage[EXPANDED_EVENTS.name] = True
            # Undocumented: adds the events of the buckets of time-series collections.
            stage[SYSTEM_EVENTS.name] = True
            if self.facts.topology is Topology.REPLICA_SET:
                # Undocumented: adds events for documents that convertToCapped and cloneCollectionAsCapped copy. On a
                # sharded cluster it would add events for documents that migrate between shards, and mongos refuses it.
                stage[MIGRATION_EVENTS.name] = True
        if self.raw_updates:
            # Undocumented as well.
            stage[RAW_UPDATES.name] = True
        if position is not None and position.token:
            # Use `startAfter` only after an event `invalidate`, whose token `resumeAfter` refuses: with `startAfter`,
            # the stream of a mongos may fail when a shard is added.
            stage["startAfter" if form.invalidated else "resumeAfter"] = position.token
        elif position is not None:
            stage["startAtOperationTime"] = next_time(position.time)
        yield {"$changeStream": stage}
        selected = self.namespaces.expression("ns.db", "ns.coll")
        if selected is not None:
            definitions = {"operationType": {"$nin": list(DATA_OPERATIONS)}}
            # An expression over names cannot determine the owner of buckets; the caller can, by their UUID.
            buckets = {"ns.coll": {"$regex": f"^{re.escape(BUCKETS_PREFIX)}"}}
            passed = [selected, definitions, buckets]
            if position is None or form.window is None:
                yield {"$match": {"$or": passed}}
            else:
                if form.window:
                    end = end_of_second(position.time, form.window)
                    yield {"$match": {"$or": [*passed, {"clusterTime": {"$gt": end}}]}}
                matches = condition({"$or": passed})
                emptied = {"_id": "$_id", "txnNumber": "$txnNumber"}
                yield {"$replaceWith": {"$cond": [matches, "$$ROOT", emptied]}}
        if self.keys_only:
            yield {"$project": dict.fromkeys(KEY_EVENT_FIELDS, 1)}
        elif form.page.bare:
            yield {"$unset": ["fullDocument", "updateDescription", "rawUpdateDescription"]}
        elif self.facts.splits_large_events:
            yield {SPLIT_EVENTS.name: {}}
        if form.page.doublings:
            yield {"$set": {"padding": _padding(form.page.doublings)}}


def _is_empty(event: memoryview) -> bool:
    """Return whether a server has emptied an event, because it does not match the filter of the stream."""
    names = {each.name for each in rawbson.elements(bytes(event))}
    return names <= {b"_id", b"txnNumber", b"padding"}


def _is_resumable(event: memoryview) -> bool:
    """Return whether MongoDB 6.0 can resume the stream after this event, if the stream is reopened with its filter.

    It cannot if the event belongs to a transaction and does not match the filter: the server sends such an event, but
    emptied (see `_is_empty`).
    """
    return not _is_empty(event) or rawbson.find(bytes(event), b"txnNumber") is None


def _padding(doublings: int) -> dict[str, Any]:
    """Return an expression for a string of 2 ** `doublings` bytes."""
    doubled = {"$concat": ["$$value", "$$value"]}
    return {"$reduce": {"input": {"$range": [0, doublings]}, "initialValue": "p", "in": doubled}}


def start_position(stream: ChangeStream) -> Position:
    """Return a position in the change stream after all writes acknowledged so far. Raises the driver's errors."""
    if stream.facts.is_sharded:
        # mongos starts at the newest time that it knows, and may not know of writes through another mongos. The driver
        # passes the time of this answer to the mongos that opens the stream.
        ask_all_shards(stream.client)
    with stream.open(None) as cursor:
        page = next(cursor.pages())
    assert page.resume is not None
    return position_at(page.resume)


class ChangeReader:
    """Reads one change stream, beginning at a given position.

    After a temporary failure, the stream is reopened at the position that the reader has reached. If the oplog no
    longer reaches back to that position, `awaits_oplog` says whether to wait for a member with a longer oplog to become
    the primary.
    """

    def __init__(
        self,
        stream: ChangeStream,
        position: Position,
        stop: StopToken,
        awaits_oplog: bool = True,
    ) -> None:
        self._stream = stream
        self._position = position
        self._newest = passed_time(position)
        self._stop = stop
        self._awaits_oplog = awaits_oplog
        self._form = Form()
        # Why another member of the replica set may still have the changes after the position, if the oplog of the
        # primary has dropped them.
        self._elsewhere: Temporary | None = None
        # The cluster time of the position at which the stream was opened.
        self._opened_at = position.time

    def pages(self) -> Iterator[StreamPage]:
        """Yield pages of the stream without end. A page may have no events.

        Raises OperationError OplogWindowExceeded if the oplog no longer holds the events after the position, or, in a
        block of `retry.impatient`, ClusterUnreachable if another member may still hold them; OperationError
        EventTooLarge if an event is too large even without its contents; the driver's other errors that are not
        temporary; and `Cancelled`.
        """
        try:
            while True:
                yield from self._pages()
        except OperationFailure as error:
            if failures.is_history_lost(error):
                raise self._lost() from error
            if failures.code_of(error) in _TOO_LARGE:
                cluster, text = name_of(self._stream.client), failures.text_of(error)
                raise OperationError(
                    failures.EVENT_TOO_LARGE,
                    f"A change event of the cluster {cluster} cannot be sent: {text}.",
                ) from error
            raise

    def _lost(self) -> OperationError:
        """Return the error that says that the oplog does not reach back to the position of the reader."""
        if self._elsewhere is not None:
            # A command does not wait until another member is the primary. The changes are not lost yet.
            what = self._elsewhere.what
            text = f"{what[0].upper()}{what[1:]}. {_OTHER_MEMBER} Then send the command again. {_IF_GONE}"
            return OperationError(failures.CLUSTER_UNREACHABLE, text)
        cluster, since = name_of(self._stream.client), _shown(self._position.time)
        whose, others = "the primary", " (other members were not asked)."
        if self._stream.facts.is_sharded:
            whose, others = "a shard", f". {_UNASKED_SHARDS}"
        elif self._awaits_oplog:
            others = ", nor does the oplog of any other member (hidden and delayed members were not asked)."
        text = f"The oplog of {whose} of the cluster {cluster} no longer reaches back to {since}{others}"
        return OperationError(failures.OPLOG_WINDOW_EXCEEDED, text)

    def _pages(self) -> Iterator[StreamPage]:
        """Yield pages until the stream must be reopened in another form."""
        for page in resilient_pages(self._reopen, self._classify, self._stop):
            read = self._stream_page(page)
            matching = self._form.window is None
            yield read if matching else read._replace(events=[*filterfalse(_is_empty, read.events)])
            form = self._next_form(read)
            if form != self._form:
                self._form = form
                return

    def _next_form(self, read: StreamPage) -> Form:
        """Return the form in which to continue after the page `read`.

        After pages that were too large, the first page with events shows that larger pages may be possible again. If
        the filter applies only to a window (see `Form.window`), the window is doubled at its end (0 becomes 1), if the
        stream can be reopened there with the filter. When the reader has caught up, the window is removed, so that the
        filter applies to all events again.
        """
        form = self._form
        if form.step and read.events:
            return form.larger()
        if form.window is None or not self._position.is_past(self._opened_at):
            return form
        if not read.events:
            return replace(form, window=None)
        is_over = self._position.is_past(end_of_second(self._opened_at, form.window))
        if is_over and _is_resumable(read.events[-1]):
            return replace(form, window=2 * form.window or 1)
        return form

    def _stream_page(self, page: Page) -> StreamPage:
        assert page.resume is not None
        self._position = position_at(page.resume)
        if self._form.invalidated:
            self._form = replace(self._form, invalidated=False)
        # A newly elected primary may reply without a time, or with one before the last event. mongos replies with the
        # time of the shards that it has just asked; an event may have come from another shard before. Do not use the
        # time of the position: it may be in the future, and servers refuse to read at such a time.
        passed = passed_time(self._position)
        self._newest = max(self._newest, passed, page.time or passed)
        return StreamPage(page.documents(), self._position, self._newest)

    def _reopen(self) -> RawCursor:
        self._opened_at = self._position.time
        return self._stream.open(self._position, self._form)

    def _classify(self, error: BaseException) -> Temporary | None:
        code = failures.code_of(error)
        if failures.is_history_lost(error):
            # An open cursor whose next events are no longer in the oplog fails with another code than a lost resume
            # token. Reopen the stream to find out whether the resume token is lost, too.
            lags = code == failures.CAPPED_POSITION_LOST
            if lags:
                return failures.again(error)
            return self._classify_loss() if self._awaits_oplog else None
        if code in _TOO_LARGE and (smaller := self._form.smaller()) is not None:
            self._form = smaller
            return failures.again(error, at_once=True)
        if code == failures.CHANGE_STREAM_FATAL and self._form.window != 0:
            # A page may end at an event of a transaction that the filter leaves out. MongoDB 6.0 cannot resume there
            # with the filter, but can without it.
            self._form = replace(self._form, window=0)
            return failures.again(error, at_once=True)
        if isinstance(error, NetworkTimeout):
            self._form = self._form.sooner()
        if code == failures.INVALID_RESUME_TOKEN and not self._form.invalidated:
            # Routers before 8.0 can end a stream with the event `invalidate` when a database is moved to another shard
            # (movePrimary).
            self._form = replace(self._form, invalidated=True)
            return failures.again(error, at_once=True)
        return failures.lost_cursor(error)

    def _classify_loss(self) -> Temporary | None:
        """Return a temporary failure if the oplog of another member may still reach back to the reader's position.

        Otherwise return None. Call this after a server has reported that its own oplog does not reach back to the
        position. The members of shards are not asked: on a sharded cluster, always return a temporary failure.
        """
        stream, time = self._stream, self._position.time
        if stream.facts.is_sharded:
            return Temporary(
                f"the oplog of a shard of the cluster {name_of(stream.client)} does not reach back to {_shown(time)}, "
                "but the changes since then are needed",
                _OTHER_SHARD,
                600.0,
            )
        self._elsewhere = only_elsewhere(name_of(stream.client), reach(stream.client, time), time)
        return self._elsewhere


def only_elsewhere(cluster: str, found: Reach, time: Timestamp) -> Temporary | None:
    """Return a temporary failure if the oplog of any member reaches, or may reach, back to `time`.

    The text of the failure names the cluster and these members. Return None if every asked member answered, and no
    oplog reaches back to `time`. `found` is the result of `oplog_reach.reach`, which does not ask hidden and delayed
    members.
    """
    if found.none:
        return None
    members = ", ".join(found.holding) or (
        f"unknown, because {', '.join(found.unknown)} did not answer, or the user lacks the role clusterMonitor"
    )
    return Temporary(
        f"the oplog of the primary of the cluster {cluster} does not reach back to {_shown(time)}, but the changes "
        f"since then are needed. Members whose oplog reaches back far enough: {members}",
        f"{_OTHER_MEMBER} {_CONTINUES}",
    )


def _shown(time: Timestamp) -> str:
    return time.as_datetime().isoformat()
