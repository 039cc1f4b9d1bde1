"""Reads the change events of one cluster, and saves rechecks of the changed documents.

The rechecks for an event are saved before the position of the stream moves past the event.

A DDL event of the check's namespaces on the source ends the check with an error, because earlier comparisons may no
longer be valid. A DDL event on the destination does not end the check, because the sync tool changes definitions when
it commits. Instead, all definitions are compared again at the end, and a collection that is created, dropped, renamed,
sharded or resharded is compared again as a whole. DDL events of chunk migrations are ignored.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from time import monotonic

from bson.timestamp import Timestamp

from verifier.cluster.changes import ChangeReader, ChangeStream, StreamPage
from verifier.cluster.events import DefinitionEvent, KeyEvent, parse_key_event
from verifier.cluster.keys import id_only
from verifier.cluster.migrations import Migrations
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.times import Position, seconds_between
from verifier.compare.amounts import Lag, Rate
from verifier.compare.check_progress import Changes
from verifier.compare.context import CheckContext
from verifier.compare.errors import DEFINITION_CHANGED
from verifier.compare.points import Point
from verifier.compare.record import Side
from verifier.compare.task import Recheck, recheck_of, whole_collection
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken, wait_until

# The DDL events after which a collection is compared again as a whole. `shardCollection` is needed if a
# collection is created and sharded at once, because `Migrations` attributes its `create` event to a migration.
OF_WHOLE_COLLECTIONS = frozenset(
    {"create", "drop", "rename", "shardCollection", "reshardCollection"}
)

# The maximum number of namespaces that `Recorder` remembers.
_MOST_NAMES = 10_000

_log = logging.getLogger(__name__)


class Recorder:
    """A reader of one change stream, from the saved position up to the saved end of user writes (a cluster time).

    If a later end is saved, the reader continues.
    """

    def __init__(self, context: CheckContext, side: Side, stop: StopToken) -> None:
        self._side = side
        self._cluster = context.sides.of(side)
        self._store = context.store
        self._rechecks = context.rechecks
        self._watched = context.subject.watched(side)
        self._observe = context.observe
        self._tuning = context.sides.tuning
        self._stop = stop
        record = self._store.record.side(side)
        self._seen = Counter(record.seen)
        self._position = record.position
        self._saved_at = monotonic()
        # The end of user writes for which a no-op was appended last; None before the first.
        self._noted: Timestamp | None = None
        self._rate = Rate()
        self._lag = Lag()
        self._moved_at = monotonic()
        # Maps a namespace that stores documents on this cluster to its name on the source; to None if it is not part of
        # the check.
        self._stored: dict[Namespace, Namespace | None] = {}  # cleared when it is full
        self._migrations = Migrations(self._cluster.client, self._cluster.facts, stop)
        # The newest cluster time of a page. A read at or after this time sees every change that this reader has read.
        self.newest: Timestamp | None = None

    @property
    def position(self) -> Position:
        """Return the position up to which the rechecks of all events are saved."""
        return self._position

    @property
    def drained(self) -> bool:
        end = self._end
        return end is not None and self._position.is_past(end)

    @property
    def _end(self) -> Timestamp | None:
        return self._store.record.side(self._side).end

    def changes(self) -> Changes:
        lag = self._lag.seconds(self.drained)
        rate = None if lag is None else self._rate.per_second
        return Changes(dict(self._seen), rate, lag)

    def run(self) -> None:
        """Read change events until stopped. Save rechecks for them, and every few seconds the position.

        Pause at the saved end of user writes, until a later end is saved.

        Raises OperationError DefinitionChanged for a DDL event of the check's namespaces on the source (unless a chunk
        migration caused it), OplogWindowExceeded, EventTooLarge and Superseded; the errors of a save (see CheckStore);
        the driver's errors that are not temporary; and `Cancelled`.
        """
        stream = ChangeStream(
            self._cluster.client,
            self._cluster.facts,
            keys_only=True,
            namespaces=self._watched.namespaces,
            wait_ms=self._wait_ms,
        )
        reader = ChangeReader(stream, self._position, self._stop, self._watched.awaits_oplog)
        for page in reader.pages():
            self._take(page)
            self._keep_moving()
            self._pass_end()
            if self.drained:
                self._save_position()
                self._observe(Point.DRAINED, self._side.value)
                # Later changes do not count, unless a later end is saved before the verdict.
                wait_until(lambda: not self.drained, self._stop)

    def _wait_ms(self) -> int:
        if self._end is not None or self._watched.is_awaited():
            return self._tuning.end_wait_ms
        return self._tuning.stream_wait_ms

    def _take(self, page: StreamPage) -> None:
        # Set the time before the rechecks are added: a generation that runs them must read at or after it.
        self.newest = page.source_time
        found = list(self._found(page))
        self._rechecks.add(dict.fromkeys(found))
        self._position = page.position
        self._lag.set(seconds_between(page.position.time, page.source_time))
        self._rate.add(len(found))
        if monotonic() - self._saved_at > self._tuning.position_interval:
            self._save_position()

    def _found(self, page: StreamPage) -> Iterator[Recheck]:
        for view in page.events:
            event = parse_key_event(bytes(view))
            if isinstance(event, KeyEvent):
                namespace = self._stored_on_source(event.namespace)
                if namespace is not None:
                    self._seen[event.operation] += 1
                    yield recheck_of(namespace, id_only(event.key))
            else:
                yield from self._of_definition(event)

    def _stored_on_source(self, namespace: Namespace) -> Namespace | None:
        if namespace not in self._stored or not self._watched.is_fixed:
            if len(self._stored) == _MOST_NAMES:
                self._stored.clear()
            owner = namespace.owner
            named = self._watched.defined(owner)
            of_buckets = named is not None and namespace != owner
            self._stored[namespace] = named.buckets if named and of_buckets else named
        return self._stored[namespace]

    def _of_definition(self, event: DefinitionEvent) -> Iterator[Recheck]:
        names = [event.namespace, *([] if event.renamed is None else [event.renamed])]
        defined = (self._watched.defined(each.owner) for each in names)
        concerned = [each for each in defined if each is not None]
        if not concerned or self._migrations.caused(event):
            return
        self._seen[event.operation] += 1
        described = " to ".join(map(str, names))
        if self._side is Side.SOURCE:
            raise OperationError(
                DEFINITION_CHANGED,
                f"The source reported the operation {event.operation}: {described}.",
            )
        # A sync tool changes definitions all the time.
        _log.debug(
            "A definition changed on the destination.",
            extra={"operation": event.operation, "namespace": described},
        )
        if event.operation in OF_WHOLE_COLLECTIONS:
            yield from map(whole_collection, concerned)

    def _keep_moving(self) -> None:
        """Append a no-op to the oplog if the change stream is far behind, because the cluster may be idle.

        A shard without writes holds back the stream of all shards until its servers append their periodic no-op. By
        default, servers append one every ten seconds, but this can be disabled (`writePeriodicNoops`).
        """
        lag, now = self._lag.seconds(), monotonic()
        longest = self._tuning.idle_lag
        if lag is not None and lag > longest and now - self._moved_at > longest:
            append_note(self._cluster.client, self._stop)
            self._moved_at = now

    def _pass_end(self) -> None:
        """Append a no-op to the oplog when an end of user writes is saved, and again when a later end is saved.

        Without the no-op, the change stream of an idle cluster would pass the end late, or never if the servers append
        no periodic no-op.
        """
        end = self._end
        if end is not None and end != self._noted:
            append_note(self._cluster.client, self._stop)
            self._noted = end

    def _save_position(self) -> None:
        self._store.update_side(self._side, position=self._position, seen=dict(self._seen))
        self._saved_at = monotonic()
        self._observe(Point.POSITION_SAVED, self._side.value)
