"""Keeps the shard keys of the destination those of a sharded source.

That a collection is sharded comes as an event. That its key is refined or replaced does not, from servers before
6.0.14, but their metadata tell. A refined key begins with the one before it, so whatever was written by that is in its
place still: it is enough to follow when a commit was asked for. A collection whose key is replaced is another one from
then on, with another UUID, and no event says that: this cannot be followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.index_builds import build_indexes
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import SHARD_KEY_CHANGED
from syncsvc.indexing import check
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.inventory import sharded_names
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import SLOW_POLL, StopToken, wait_until

# A sharded collection of the source as it is now: its name and its shard key.
Sharded = tuple[Namespace, Document]


class ShardKeys:
    """Changes shard keys, in the registry and on the destination. Every action may be repeated."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._catalog = Catalog(context, stop)
        self._stop = stop

    def shard(self, record: CollectionRecord, shard_key: Document) -> None:
        """The source has sharded the collection. Raises OperationError where the destination cannot."""
        # What was listed may be ahead: a key that is refined already.
        if is_refined(record.definition.shard_key, shard_key):
            return
        definition = self._with_key(record, shard_key).definition
        sharded = self._context.registry.change(record, definition=definition)
        self._catalog.create_bare(sharded.present)
        build_indexes(self._context, sharded, self._stop)

    def refine(self, record: CollectionRecord, key: Document) -> None:
        """The source has added fields to the key, or had."""
        shard_key = record.definition.shard_key
        assert shard_key
        wanted = {**shard_key, "key": key}
        if not is_refined(wanted, shard_key):
            return
        refined = self._with_key(record, wanted)
        self._catalog.reconcile_indexes(refined.present)
        self._catalog.refine(refined.definition)
        # After it is done: nobody would find out that it was not.
        self._context.registry.change(record, definition=refined.definition)

    def reconcile(self) -> None:
        """Refine what the source has refined. All events up to now are applied."""
        now = sharded_now(self._context, self._stop)
        for record in self._context.registry:
            if record.uuid in now and record.definition.shard_key:
                _, shard_key = now[record.uuid]
                self.refine(record, shard_key["key"])

    def _with_key(self, record: CollectionRecord, shard_key: Document) -> CollectionRecord:
        definition = replace(record.definition, shard_key=shard_key)
        check(definition, self._context.run.record.options)
        return replace(record, definition=definition)


class ShardKeyWatch:
    """Looks for shard keys that were replaced, which no event tells."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def run(self, stop: StopToken) -> None:
        """Look until stopped. Raises OperationError ShardKeyChanged."""
        if not self._context.source_facts.is_sharded:
            return
        while True:
            suspects = dict(replaced(self._context.registry, sharded_now(self._context, stop)))
            if suspects:
                # What was dropped before this and made anew is told by events of before this.
                self._wait_until_past(append_note(self._context.source_client, stop), stop)
                refuse_replaced(suspects, self._context.registry)
            stop.sleep(self._context.tuning.shard_key_interval)

    def _wait_until_past(self, time: Timestamp, stop: StopToken) -> None:
        wait_until(lambda: self._is_past(time), stop, SLOW_POLL)

    def _is_past(self, time: Timestamp) -> bool:
        record = self._context.run.record
        return record.position is not None and record.position.time > time


def sharded_now(context: RunContext, stop: StopToken) -> dict[bytes, Sharded]:
    """The sharded collections of the source by UUID."""
    if not context.source_facts.is_sharded:
        return {}
    return read(lambda: sharded_names(context.source_client), stop)


def replaced(
    records: Iterable[CollectionRecord], now: Mapping[bytes, Sharded]
) -> Iterator[tuple[bytes, Namespace]]:
    """The sharded collections whose names other sharded ones have by now; events to come may tell why. Pure."""
    names = {name: uuid for uuid, (name, _) in now.items()}
    for record in records:
        if (
            record.definition.shard_key
            and names.get(record.source_storage, record.uuid) != record.uuid
        ):
            yield record.uuid, record.source_name


def refuse_replaced(
    suspects: Mapping[bytes, Namespace], records: Iterable[CollectionRecord]
) -> None:
    """Raise OperationError ShardKeyChanged for those that have their names still, when all such events are applied."""
    found = [each for each in records if suspects.get(each.uuid) == each.source_name]
    if found:
        names = ", ".join(sorted(str(each.source_name) for each in found))
        raise OperationError(SHARD_KEY_CHANGED, f"reshardCollection was run on {names}.")


def is_refined(shard_key: Document | None, before: Document) -> bool:
    """Whether the key begins with that one, and goes on. Pure."""
    fields, old = list((shard_key or {}).get("key", {}).items()), list(before["key"].items())
    return len(fields) > len(old) and fields[: len(old)] == old
