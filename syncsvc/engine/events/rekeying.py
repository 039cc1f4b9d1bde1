"""Detects changed shard keys on a sharded source, and changes those of a sharded destination in the same way.

Sharding a collection causes an event. Refining or replacing its key causes none on servers before 6.0.14, but is
visible in their metadata. A refined key begins with the previous key, so queries with the previous key still find each
document: it is enough to refine the key on the destination when a commit is requested. A collection whose key is
replaced becomes another collection, with another UUID: `Recreated` copies it.

`movePrimary` gives the unsharded collections of a database new UUIDs, too. Servers before 8.0 send a drop event for
each old collection, and `Recreated` then copies the new one. Newer servers may not. So if the primary shard of a
database has changed, this module also looks for collections with a known name and a new UUID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.index_builds import build_indexes
from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import SHARD_KEY_CHANGED
from syncsvc.rules.indexing import check, destined
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.inventory import list_uuids, primary_shards, sharded_names
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import SLOW_POLL, StopToken, wait_until
from verifier.runtime.waits import waiting

_COPYING = (
    "Other changes are applied after the copy of these collections. If the wait does not end, see the other "
    "warnings."
)

# The current name and shard key of a sharded collection of the source.
Sharded = tuple[Namespace, Document]


class ShardKeys:
    """Changes shard keys, in the registry and on a sharded destination. Every operation is idempotent.

    If the destination is a replica set, only the source's key is saved: change events identify documents by this key.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._catalog = catalog_of(context, stop)
        self._stop = stop

    def shard(self, record: CollectionRecord, shard_key: Document) -> None:
        """Shard a collection on the destination with this key, and save the key; build the collection's indexes.

        A no-op if the saved key already begins with this key and has more fields. Raises OperationError if the
        destination cannot shard the collection.
        """
        # The listed definition may be newer than the event, with a key that is already refined.
        if is_refined(record.source_key, shard_key):
            return
        keyed = self._with_key(record, shard_key)
        sharded = self._save(record, keyed)
        if sharded.definition.sharded:
            self._catalog.create_bare(sharded.current_definition)
            build_indexes(self._context, sharded, self._stop)

    def refine(self, record: CollectionRecord, key: Document) -> None:
        """Refine the shard key of a collection on the destination, and save the new key.

        `key` maps fields to 1 or "hashed". A no-op unless `key` begins with the saved key and has more fields.
        """
        shard_key = record.source_key
        assert shard_key
        wanted = {**shard_key, "key": key}
        if not is_refined(wanted, shard_key):
            return
        refined = self._with_key(record, wanted)
        if refined.definition.sharded:
            self._catalog.reconcile_indexes(refined.current_definition)
            self._catalog.refine(refined.definition)
        # Save the key afterwards: if it were saved first, a restarted process would find the key refined, and skip the
        # work.
        self._save(record, refined)

    def reconcile(self) -> None:
        """Refine the destination's shard key of each collection whose shard key was refined on the source.

        All change events before the call must already be applied.
        """
        now = sharded_now(self._context, self._stop)
        for record in self._context.registry:
            if record.uuid in now and record.source_key:
                _, shard_key = now[record.uuid]
                self.refine(record, shard_key["key"])

    def _with_key(self, record: CollectionRecord, shard_key: Document) -> CollectionRecord:
        keyed = replace(record.on_source, shard_key=shard_key)
        check(keyed, self._context.target)
        wanted = destined(keyed, self._context.target)
        definition = replace(record.definition, indexes=wanted.indexes, shard_key=wanted.shard_key)
        return replace(record, definition=definition, source_key=shard_key)

    def _save(self, record: CollectionRecord, keyed: CollectionRecord) -> CollectionRecord:
        return self._context.registry.change(
            record, definition=keyed.definition, source_key=keyed.source_key
        )


class ShardKeyWatch:
    """Detects collections that were resharded or moved on the source, for which some servers send no event.

    `run` detects them in the thread that calls it; any thread may call the other methods.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._resharded: frozenset[bytes] = frozenset()
        # The databases in which `run` found no moved collection, each with its value of `primary_shards` at that time.
        self._unmoved: Mapping[str, Document] = {}

    @property
    def resharded(self) -> frozenset[bytes]:
        """Return the old UUIDs of the collections that were resharded or moved; some may already be copied again.

        Always empty if several instances share the sync: then, `run` raises an error instead.
        """
        return self._resharded

    def run(self, stop: StopToken) -> None:
        """Look for resharded or moved collections periodically until stopped; no-op if the source is a replica set.

        If several instances share the sync, raises OperationError ShardKeyChanged if a check finds the same such
        collections as the previous one: only an event could tell all instances when to copy them again.
        """
        if not self._context.source_facts.is_sharded:
            return
        primaries: Mapping[str, Document] = {}
        previous: frozenset[bytes] = frozenset()
        while True:
            before, primaries = primaries, self._primaries(stop)
            # Servers before 8.0 send their drop events soon after they have changed the primary shard. Wait for these
            # events: if several instances share the sync, only an event can make them copy a collection again.
            settled = {name: each for name, each in primaries.items() if each == before.get(name)}
            suspects = self._suspects(settled, stop)
            moved = {each.database for each in suspects.values()}
            self._unmoved = {name: each for name, each in settled.items() if name not in moved}
            if suspects:
                # Users may have dropped one of these collections and created it again. Wait until the events of such
                # changes are applied: they all come before the no-op that `append_note` writes to the oplog.
                self._wait_until_past(append_note(self._context.source_client, stop), stop)
            found = [
                each
                for each in self._context.registry
                if suspects.get(each.uuid) == each.source_name
            ]
            uuids = frozenset(each.uuid for each in found)
            if not self._context.run.record.instances:
                self._resharded = uuids
            elif uuids and uuids == previous:
                # While the drop events of a movePrimary arrive, this set shrinks: fail only if it stays the same.
                raise _changed(found)
            previous = uuids
            stop.sleep(self._context.tuning.shard_key_interval)

    def wait_until_copied(self, stop: StopToken) -> None:
        """Wait until all collections that were resharded or moved on the source are copied again.

        Meanwhile, other threads must execute `run` and apply change events.
        """
        with waiting(
            "The commit waits until resharded or moved collections are copied again", _COPYING
        ):
            wait_until(lambda: not self._suspects_now(stop), stop, SLOW_POLL)

    def check(self, stop: StopToken) -> None:
        """Raise OperationError ShardKeyChanged if a collection was resharded or moved and is not copied again yet.

        All change events before the call must already be applied.
        """
        suspects = self._suspects_now(stop)
        found = [each for each in self._context.registry if each.uuid in suspects]
        if found:
            raise _changed(found)

    def _suspects_now(self, stop: StopToken) -> dict[bytes, Namespace]:
        return self._suspects(self._primaries(stop), stop)

    def _suspects(
        self, primaries: Mapping[str, Document], stop: StopToken
    ) -> dict[bytes, Namespace]:
        """Return UUID and name of each recorded collection whose name belongs to another collection on the source now.

        Unsharded collections are checked only in the databases `primaries`, and only if the primary shard of the
        database may have changed since `run` last found no moved collection there.
        """
        records = tuple(self._context.registry)
        unsharded = {each.source_name.database for each in records if not each.source_key}
        moved = [
            name
            for name, each in primaries.items()
            if name in unsharded and each != self._unmoved.get(name)
        ]
        listed = read(lambda: list_uuids(self._context.source_client, moved), stop)
        return dict(replaced(records, sharded_now(self._context, stop), listed))

    def _primaries(self, stop: StopToken) -> Mapping[str, Document]:
        if not self._context.source_facts.is_sharded:
            return {}
        return read(lambda: primary_shards(self._context.source_client), stop)

    def _wait_until_past(self, time: Timestamp, stop: StopToken) -> None:
        wait_until(lambda: self._context.run.record.is_past(time), stop, SLOW_POLL)


def sharded_now(context: RunContext, stop: StopToken) -> dict[bytes, Sharded]:
    """Return the name and shard key of each sharded collection of the source, by UUID; empty for a replica set."""
    if not context.source_facts.is_sharded:
        return {}
    return read(lambda: sharded_names(context.source_client), stop)


def replaced(
    records: Iterable[CollectionRecord],
    now: Mapping[bytes, Sharded],
    listed: Mapping[Namespace, bytes],
) -> Iterator[tuple[bytes, Namespace]]:
    """Yield UUID and name of each collection of `records` whose name belongs to another collection of the source now.

    `now` contains the current sharded collections of the source, by UUID. For a record with a shard key, the name is
    looked up there; for any other record, in `listed`, which maps names to UUIDs. A record whose name is not found is
    left out. Either the yielded collection was resharded or moved, or users have dropped or renamed it and given its
    name to another one. If users did this, change events say so, which may not be applied yet.
    """
    sharded = {name: uuid for uuid, (name, _) in now.items()}
    for record in records:
        if record.source_key:
            uuid = sharded.get(record.source_storage)
        else:
            uuid = listed.get(record.source_name)
        if uuid not in (None, record.uuid):
            yield record.uuid, record.source_name


def _changed(records: Iterable[CollectionRecord]) -> OperationError:
    names = ", ".join(sorted(str(each.source_name) for each in records))
    return OperationError(
        SHARD_KEY_CHANGED, f"The source has replaced these collections with new ones: {names}."
    )


def is_refined(shard_key: Document | None, before: Document) -> bool:
    """Return whether `shard_key` begins with the fields of the shard key `before` and has more fields."""
    fields, old = list((shard_key or {}).get("key", {}).items()), list(before["key"].items())
    return len(fields) > len(old) and fields[: len(old)] == old
