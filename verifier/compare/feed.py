"""The change events of the source, handed on by somebody who reads them for a purpose of its own.

A sync reads every event of the source anyway. That it hands them on is as good as a second change stream, because

- it begins at a place of its stream: a page counts whole or not at all, and what is listed and read for the check, is
  read after the first page that counts has come, at or after that page's time. So whatever came before it is seen;
- it hands on an event before it counts as applied, and it flushes before it saves the position from which it would read
  on: how far all is applied is found out first, then what was handed on is saved, then the position. A killed process
  reads again whatever was not saved, and hands it on again, which does no harm. It opens the feed before it reads on.

A definition that changes does not end the check, since the one who reads applies it to the destination: a collection
that comes, goes or gets another name is compared anew. Options and indexes are compared at the end anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from bson.timestamp import Timestamp

from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.times import Position, seconds_between
from verifier.compare.amounts import Lag, Rate
from verifier.compare.check_progress import Changes
from verifier.compare.rechecks import Rechecks
from verifier.compare.recorder import OF_WHOLE_COLLECTIONS
from verifier.compare.store import CheckStore
from verifier.compare.task import Recheck, recheck_of, whole_collection

# What a key costs in memory beside its own bytes.
_KEY_OVERHEAD = 100


@dataclass
class _Noted:
    """What waits to be saved: keys by where their documents are, and collections that are compared anew."""

    keys: dict[Namespace, set[bytes]] = field(default_factory=dict)
    collections: set[Namespace] = field(default_factory=set)
    size: int = 0
    events: int = 0

    def rechecks(self) -> Iterator[Recheck]:
        # First, so that nothing is saved of single documents of these.
        yield from map(whole_collection, self.collections)
        for namespace, keys in self.keys.items():
            yield from (recheck_of(namespace, key) for key in keys)


class Feed:
    """Between one thread that reads events, any that flush, and a check that opens it; until then, nothing counts.

    The reading thread waits while more than `most_waiting` bytes of keys wait to be saved.
    """

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._check: tuple[CheckStore, Rechecks] | None = None
        self._counts = False  # whether the present page does; of the reading thread alone
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
        """From the next page on, everything is noted for this check."""
        self._position = self._read_to = store.record.source.position
        self._check = store, rechecks

    def page_begins(self, source_time: Timestamp) -> None:
        """Some events have come; `source_time` is the source's time then."""
        self._counts = self._check is not None
        if self._counts:
            self._newest = source_time

    def changed(self, namespace: Namespace, key: bytes) -> None:
        """The document with this key was changed, which is in that namespace of the source."""
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
        """A collection, view or index was changed."""
        if self._counts and event.operation in OF_WHOLE_COLLECTIONS:
            names = [event.namespace, *([] if event.renamed is None else [event.renamed])]
            with self._noting:
                owners = (each.owner for each in names)
                self._noted.collections.update(filter(is_user_namespace, owners))

    def page_ends(self, position: Position, source_time: Timestamp) -> None:
        """All events up to that position were handed on. Waits while too many of them are not saved."""
        if not self._counts:
            return
        with self._noting:
            self._read_to = position
            full = self._noted.size > self._most_waiting
        self._lag.set(seconds_between(position.time, source_time))
        if full:
            self.flush()

    def flush(self) -> None:
        """Save what was handed on by now. Raises the driver's errors; then, the next call saves it."""
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
        # Past it, not at it: all events of a transaction share one time, and a page may end among them.
        return end is not None and self.position.time > end

    def changes(self) -> Changes:
        """Whoever reads the events counts them."""
        lag = self._lag.seconds(self.drained)
        rate = None if lag is None else self._rate.per_second
        rechecked = None if self._check is None else self._check[0].record.source.rechecked
        return Changes({}, rate, lag, rechecked)
