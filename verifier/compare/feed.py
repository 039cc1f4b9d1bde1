"""Passes the source's change events to a check, from a reader that also needs the events for another purpose.

A sync reads every event of the source anyway, so its check needs no second change stream. The feed reports all changes
that a second change stream would report, because

- the check begins to list and read collections only after the feed has received its first page of events. The check
  reads at or after the cluster time of that page. So the check sees the effects of all earlier events, and the feed
  reports all later events;
- no event is lost if the process is killed. The reader passes each event to the feed before the event counts as
  applied. The reader first determines the position up to which all events are applied, then flushes the feed, and then
  saves that position. A restarted process opens the feed before it continues to read, and passes the unsaved events
  again. Passing an event twice does no harm.

A DDL event does not end the check, because the reader applies the event to the destination. A collection that is
created, dropped, renamed, sharded or resharded is compared again as a whole. Options and indexes are always compared
again at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bson.timestamp import Timestamp

from verifier.cluster.events import DefinitionEvent
from verifier.cluster.keys import id_only
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.times import Position, seconds_between
from verifier.compare.amounts import Lag, Rate
from verifier.compare.check_progress import Changes
from verifier.compare.rechecks import Rechecks
from verifier.compare.recorder import OF_WHOLE_COLLECTIONS
from verifier.compare.store import CheckStore
from verifier.compare.task import Recheck, recheck_of, whole_collection

# How many bytes of memory a key takes in addition to its own bytes.
_KEY_OVERHEAD = 100


@dataclass
class _Noted:
    """Changes that are not saved as rechecks yet: keys by namespace, and collections to compare again as a whole."""

    keys: dict[Namespace, set[bytes]] = field(default_factory=dict)
    collections: set[Namespace] = field(default_factory=set)
    size: int = 0  # the memory that the keys take, in bytes
    events: int = 0  # the number of events that changed a document

    def rechecks(self) -> Iterator[Recheck]:
        # Collections first, so that rechecks of their single documents are not saved.
        yield from map(whole_collection, self.collections)
        for namespace, keys in self.keys.items():
            # The key of a sharded collection also contains the shard key, which can differ between the clusters.
            yield from (recheck_of(namespace, key) for key in set(map(id_only, keys)))


class Feed:
    """Saves the changes that another thread has read from a change stream, as rechecks of a check.

    One thread passes the events, and any thread may flush. Events are ignored until the first page after `open`. At the
    end of a page, the feed flushes itself if more than `most_waiting` bytes of keys are not saved yet.
    """

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._check: tuple[CheckStore, Rechecks] | None = None
        self._counts = False  # whether changes of the current page are recorded; used by the reading thread only
        self._noting = threading.Lock()  # guards _noted and _read_to
        self._noted = _Noted()
        self._read_to: Position | None = None
        self._flushing = threading.Lock()  # held while something is saved; guards _unsaved
        self._unsaved = _Noted()
        self._position: Position | None = None
        self._newest: Timestamp | None = None
        self._lag = Lag()
        self._rate = Rate()

    def open(self, store: CheckStore, rechecks: Rechecks) -> None:
        """Connect the feed to a check: changes from the next page on are saved as rechecks of this check."""
        self._position = self._read_to = store.record.source.position
        self._check = store, rechecks

    def page_begins(self, source_time: Timestamp) -> None:
        """Begin a page of events; `source_time` is the source's cluster time when the page was read."""
        self._counts = self._check is not None
        if self._counts:
            self._newest = source_time

    def changed(self, namespace: Namespace, key: bytes) -> None:
        """Record that the document with this document key has changed in this namespace of the source."""
        if self._counts:
            with self._noting:
                noted = self._noted
                keys = noted.keys.get(namespace)
                if keys is None:
                    keys = noted.keys[namespace] = set()
                keys.add(key)
                noted.size += len(key) + _KEY_OVERHEAD
                noted.events += 1

    def defined(self, event: DefinitionEvent) -> None:
        """Record a DDL event that creates, drops, renames, shards or reshards a user namespace; ignore other events."""
        if event.operation in OF_WHOLE_COLLECTIONS:
            self.replaced(filter(is_user_namespace, event.owners))

    def replaced(self, namespaces: Iterable[Namespace]) -> None:
        """Record that these names may belong to other collections of the source now, which are compared as a whole."""
        if self._counts:
            with self._noting:
                self._noted.collections.update(namespaces)

    def page_ends(self, position: Position, source_time: Timestamp) -> None:
        """End a page: all events up to `position` were passed. Flush if many changed keys are not saved yet.

        `source_time` is the source's cluster time, from which the lag is computed. Raises the errors of `flush`.
        """
        if not self._counts:
            return
        with self._noting:
            self._read_to = position
            full = self._noted.size > self._most_waiting
        self._lag.set(seconds_between(position.time, source_time))
        if full:
            self.flush()

    def flush(self) -> None:
        """Save rechecks for all changes that were passed so far; a no-op before `open`. Any thread may call this.

        Raises the driver's errors, the errors of a save (see CheckStore), and `Cancelled`. After an error, the next
        call saves the same changes.
        """
        if self._check is None:
            return
        with self._flushing:
            self._save()
            with self._noting:
                self._unsaved, self._noted = self._noted, _Noted()
                read_to = self._read_to
            self._save()
            self._position = read_to

    def _save(self) -> None:
        assert self._check is not None
        _, rechecks = self._check
        rechecks.add(self._unsaved.rechecks())
        self._rate.add(self._unsaved.events)
        self._unsaved = _Noted()

    @property
    def newest(self) -> Timestamp | None:
        return self._newest

    @property
    def position(self) -> Position:
        assert self._position is not None
        return self._position

    @property
    def drained(self) -> bool:
        if self._check is None:
            return False
        end = self._check[0].record.source.end
        return end is not None and self.position.is_past(end)

    def changes(self) -> Changes:
        """Return the rate and the lag of the change events.

        The numbers of events are left out, because the reader of the events counts them itself.
        """
        lag = self._lag.seconds(self.drained)
        rate = None if lag is None else self._rate.per_second
        return Changes({}, rate, lag)
