"""Applies the DDL events of the source to the destination. Each event runs alone, after all lanes are drained.

Collections are identified by UUID. The collections are listed after the start of the stream, so a listed definition may
already include changes whose events come later; applying such an event again leads to the same definition. An event
with a UUID that the registry does not know belongs to a collection that was already gone when the collections were
listed, or that the filter excludes. An event that is applied a second time changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.created import save_created
from syncsvc.engine.definitions.index_builds import build_indexes
from syncsvc.engine.definitions.naming import new_record
from syncsvc.engine.definitions.source_lookup import find_on_source, time_series_on_source
from syncsvc.engine.events.modification import immediate, modified
from syncsvc.engine.events.recreated import Recreated
from syncsvc.engine.events.rekeying import ShardKeys
from syncsvc.engine.events.renames import Renames
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import SHARD_KEY_CHANGED, UNSUPPORTED_CHANGE
from syncsvc.indexing import Target, check, check_ttl, destined
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import is_user_namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# Events that change no definition by themselves: of index builds and transactions, and of documents that move between
# shards. The end of a resharding has another event, or is detected by `ShardKeyWatch`.
OF_NO_CONSEQUENCE = frozenset(
    {
        *("startIndexBuild", "abortIndexBuild", "endOfTransaction"),
        *("migrateChunkToNewShard", "migrateLastChunkFromShard"),
        *("reshardBegin", "reshardBlockingWrites", "reshardDoneCatchUp"),
    }
)


def has_consequences(event: DefinitionEvent) -> bool:
    """Return whether a DDL event may change a definition of a user's collection or view."""
    return is_user_namespace(event.namespace.owner) and event.operation not in OF_NO_CONSEQUENCE


class DefinitionEvents:
    """Applies DDL events to the registry and to the destination."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop
        self._catalog = Catalog(context, stop)
        self._renames = Renames(context, self._catalog, stop)
        self._shard_keys = ShardKeys(context, stop)
        self._recreated = Recreated(context, self._renames, stop)
        self._registry = context.registry
        self._selection = context.selection
        self._target = context.target
        self._actions: dict[str, Callable[[DefinitionEvent], None]] = {
            "create": self._create,
            "drop": self._drop,
            "rename": self._rename,
            "modify": self._modify,
            "createIndexes": self._create_indexes,
            "dropIndexes": self._drop_indexes,
            "dropDatabase": self._drop_database,
            "shardCollection": self._shard,
            "refineCollectionShardKey": self._refine,
            "reshardCollection": self._refuse_resharding,
        }

    def apply(self, event: DefinitionEvent) -> None:
        """Apply a DDL event; ignore it if it changes no definition, or concerns no user namespace.

        Raises OperationError, with a name from the error table, if it cannot be applied.
        """
        # The DDL events of a time-series collection name its buckets, so check the owner of the namespace.
        if not has_consequences(event):
            return
        action = self._actions.get(event.operation)
        if action is None:
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"{event.operation} was run on {event.namespace} on the source; this version cannot apply it.",
            )
        action(event)

    def _create(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._define_view(event)
            return
        if event.namespace != event.namespace.owner:
            # Buckets alone are not a collection yet, and never become one if the rest of the command fails.
            return
        record = self._registry.get(event.collection)
        if record is None:
            definition = CollectionSpec(
                event.namespace, Kind.COLLECTION, event.collection, event.description
            )
            if not self._selection.selects(definition.namespace) or self._recreated.is_one(event):
                return
            if not self._can_be_synced(definition):
                return
            wanted = destined(self._with_id_index(definition), self._target)
            record = new_record(self._registry, wanted, CopyStatus.DONE)
            # Saved before it is created: a restart in between then creates it, and never leaves an unknown collection.
            self._registry.save(record)
        self._catalog.create_bare(record.present)
        save_created(self._context, [record], self._stop)
        build_indexes(self._context, record, self._stop)

    def _can_be_synced(self, definition: CollectionSpec) -> bool:
        """Return True if a new collection can be synced, and False if it cannot but no longer exists on the source.

        Raises OperationError if it cannot be synced and still exists.
        """
        try:
            check(definition, self._target)
        except OperationError:
            assert definition.uuid is not None
            database = definition.namespace.database
            if find_on_source(self._context, database, definition.uuid, self._stop) is None:
                return False
            raise
        return True

    def _with_id_index(self, definition: CollectionSpec) -> CollectionSpec:
        """Return the definition with the source's index on `_id`, which may have the old format (`v: 1`).

        The create event does not contain that index. The definition is unchanged if it already has the index, needs
        none, or the source no longer has the collection.
        """
        if not {"idIndex", "clusteredIndex"}.isdisjoint(definition.options):
            return definition
        assert definition.uuid is not None
        database = definition.namespace.database
        found = find_on_source(self._context, database, definition.uuid, self._stop)
        index = None if found is None else found.options.get("idIndex")
        if index is None:
            return definition
        return replace(definition, options={**definition.options, "idIndex": index})

    def _define_view(self, event: DefinitionEvent) -> None:
        """Create a view that was created or modified, in place of an older one; both events hold its whole definition.

        The view of a time-series collection stands for that collection. A no-op if the filter excludes the view, or a
        collection has its name.
        """
        if event.description["viewOn"] == event.namespace.buckets.collection:
            self._define_time_series(event)
            return
        if not self._selection.selects(event.namespace):
            return
        if self._registry.at(event.namespace) is None:
            view = CollectionSpec(event.namespace, Kind.VIEW, None, event.description)
            check(view, self._target)
            # A view of an older definition may exist: this event is newer, or later events will replace it again.
            self._catalog.drop_view(event.namespace)
            self._context.views.add([view])
            self._catalog.create_view(view)

    def _define_time_series(self, event: DefinitionEvent) -> None:
        """Copy a time-series collection whose view was created or modified; a no-op if it is already synced.

        The event does not contain the UUID of the collection's buckets, so it is looked up on the source.
        """
        record = self._registry.at(event.namespace)
        if record is None or record.status is not CopyStatus.DONE:
            uuid = time_series_on_source(self._context, event.namespace, self._stop)
            if uuid is not None:
                self._renames.adopt(uuid, event.namespace)

    def _drop(self, event: DefinitionEvent) -> None:
        if event.collection is not None:
            self._drop_collection(event.collection)
            # Even if the collection was dropped before a restart: the restart may have come before this step.
            self._renames.release(event.namespace)
            self._recreated.take_over(event.namespace.owner)
        elif self._registry.at(event.namespace) is None:
            self._catalog.drop_view(event.namespace)

    def _drop_collection(self, uuid: bytes) -> None:
        record = self._registry.get(uuid)
        if record is not None:
            self._renames.drop(record)

    def _drop_database(self, event: DefinitionEvent) -> None:
        """Drop the views of a database, and then the database if it is empty.

        Its collections were dropped by events of their own; views have no drop events.
        """
        self._catalog.drop_views(event.namespace.database)
        self._catalog.drop_empty_database(event.namespace.database)

    def _rename(self, event: DefinitionEvent) -> None:
        assert event.collection is not None and event.renamed is not None
        replaced = event.description.get("dropTarget")
        if replaced is not None:
            self._drop_collection(bytes(replaced))
        self._renames.follow(event.collection, event.namespace, event.renamed)
        self._renames.release(event.namespace)

    def _modify(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._define_view(event)
            return
        record = self._registry.get(event.collection)
        if record is not None:
            definition = self._modified(record, event.description)
            check(definition, self._target)
            self._redefine(record, definition)
            self._catalog.modify(definition.namespace, immediate(event.description))

    def _modified(self, record: CollectionRecord, change: Document) -> CollectionSpec:
        """Return the definition after a collMod. An index that cannot be synced is handled as in `_checked`."""
        definition = modified(record.definition, change)
        if "index" not in change:
            return definition
        name = change["index"]["name"]
        if name not in definition.indexes:
            self._checked(record, {name: change["index"]}, check_ttl)
            return definition
        checked = self._checked(record, {name: definition.indexes[name]}, check).indexes
        indexes = {
            each: checked.get(each, index)
            for each, index in definition.indexes.items()
            if each != name or each in checked
        }
        return replace(definition, indexes=indexes)

    def _create_indexes(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is not None:
            listed = {index["name"]: index for index in event.description["indexes"]}
            created = self._checked(record, listed, check)
            new = destined(created, self._target).indexes
            indexes = {**record.definition.indexes, **new}
            self._redefine(record, replace(record.definition, indexes=indexes))

    def _checked(
        self,
        record: CollectionRecord,
        indexes: dict[str, Document],
        refuse: Callable[[CollectionSpec, Target], None],
    ) -> CollectionSpec:
        """Return the definition with only these indexes.

        If `refuse` raises an OperationError for that definition, use the current definitions of these indexes on the
        source instead: later events lead to them. If `refuse` raises an error for these definitions, too, raise it.
        """
        definition = replace(record.definition, indexes=indexes)
        try:
            refuse(definition, self._target)
        except OperationError:
            database = record.source_name.database
            found = find_on_source(self._context, database, record.uuid, self._stop)
            now = {} if found is None else found.indexes
            kept = {name: now[name] for name in indexes if name in now}
            definition = replace(definition, indexes=kept)
            refuse(definition, self._target)
        return definition

    def _drop_indexes(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is not None:
            names = {index["name"] for index in event.description["indexes"]}
            indexes = {
                name: index
                for name, index in record.definition.indexes.items()
                if name not in names
            }
            self._redefine(record, replace(record.definition, indexes=indexes))

    def _shard(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is not None:
            unique = bool(event.description.get("unique"))
            self._shard_keys.shard(record, {"key": event.description["shardKey"], "unique": unique})

    def _refine(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is not None:
            self._shard_keys.refine(record, event.description["shardKey"])

    def _refuse_resharding(self, event: DefinitionEvent) -> None:
        if self._known(event) is not None:
            # From 8.0 on, moveCollection and unshardCollection have this event, too.
            command = event.description.get("provenance", "reshardCollection")
            raise OperationError(
                SHARD_KEY_CHANGED,
                f"{command} was run on {event.namespace} on the source; a sync cannot apply it.",
            )

    def _redefine(self, record: CollectionRecord, definition: CollectionSpec) -> None:
        """Save a changed definition, then make the collection's indexes on the destination fit it.

        The definition must be saved first, because the commit restores the original indexes from it.
        """
        build_indexes(
            self._context, self._registry.change(record, definition=definition), self._stop
        )

    def _known(self, event: DefinitionEvent) -> CollectionRecord | None:
        return None if event.collection is None else self._registry.get(event.collection)
