"""Applies the DDL events of the source to the destination, one by one.

A DDL event is applied after the lanes, the threads that apply all other events, have applied everything before it.
Collections are identified by UUID. The collections are listed after the start of the stream, so a listed definition may
already include changes whose events come later; applying such an event again leads to the same definition. Events of
the types create, rename and shardCollection, and the modify event of the view of a time-series collection, can add
their collection to the registry. Any other event with a UUID that the registry does not know belongs to a collection
that is not synced: for example, the filter excludes it, it was gone when the collections were listed, or it was dropped
since. A restart can apply the newest events again, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from pymongo.errors import OperationFailure

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.created import save_created
from syncsvc.engine.definitions.index_builds import build_indexes
from syncsvc.engine.definitions.naming import new_record
from syncsvc.engine.definitions.source_lookup import (
    find_named_on_source,
    find_on_source,
    time_series_on_source,
)
from syncsvc.engine.events.modification import immediate, modified
from syncsvc.engine.events.recreated import Recreated
from syncsvc.engine.events.rekeying import ShardKeys
from syncsvc.engine.events.renames import Renames
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.rules.indexing import Target, check, check_ttl, destined
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.failures import DUPLICATE_KEY
from verifier.cluster.namespace import (
    BUCKETS_PREFIX,
    UUID_PATTERN,
    Namespace,
    is_user_namespace,
)
from verifier.cluster.namespace_map import shown
from verifier.cluster.specification import CollectionSpec, Document, Kind, same_document, without
from verifier.runtime.errors import OperationError, raise_all
from verifier.runtime.tasks import StopToken

# Events that change no definition by themselves: of index builds and transactions, of documents that move between
# shards, of the steps of a resharding, and of the end of a change stream (`invalidate`). The end of a resharding has
# another event, or is detected by `ShardKeyWatch`.
OF_NO_CONSEQUENCE = frozenset(
    {
        *("startIndexBuild", "abortIndexBuild", "endOfTransaction"),
        *("migrateChunkToNewShard", "migrateLastChunkFromShard"),
        *("reshardBegin", "reshardBlockingWrites", "reshardDoneCatchUp"),
        "invalidate",
    }
)

# Matches the names of the buckets into which servers copy a time-series collection to reshard it.
_of_resharding = re.compile(re.escape(BUCKETS_PREFIX) + rf"resharding\.{UUID_PATTERN}").fullmatch


def has_consequences(event: DefinitionEvent) -> bool:
    """Return whether a DDL event may change a definition of a user's collection or view.

    Return True for an unknown event without a namespace, and False for an event of the temporary buckets of a
    resharding.
    """
    if event.operation in OF_NO_CONSEQUENCE or _of_resharding(event.namespace.collection):
        return False
    # The DDL events of a time-series collection name its buckets, so check the owner of the namespace.
    return not event.namespace.database or is_user_namespace(event.namespace.owner)


def concerns(
    event: DefinitionEvent,
    is_synced: Callable[[bytes], bool],
    selects_any: Callable[[Iterable[Namespace]], bool],
) -> bool:
    """Return whether a DDL event of a source that reports UUIDs may change a record or the destination.

    It cannot if it has no consequences, or if the filter selects none of the names in the event and no collection in
    the event is synced. A synced collection can have an excluded name in an event: if it was listed under a newer name,
    earlier events contain its old name. Events of whole databases, and unknown events without a namespace, always
    count.

    `is_synced` returns whether a collection with this UUID has a record, and `selects_any` whether the filter selects
    at least one of the names.
    """
    if not has_consequences(event):
        return False
    if not event.namespace.collection:
        return True
    uuids = (each for each in (event.collection, event.replaced) if each is not None)
    return any(map(is_synced, uuids)) or selects_any(event.owners)


class DefinitionEvents:
    """Applies DDL events to the registry and to the destination."""

    def __init__(
        self, context: RunContext, catalog: Catalog, renames: Renames, stop: StopToken
    ) -> None:
        self._context = context
        self._stop = stop
        self._catalog = catalog
        self._renames = renames
        self._shard_keys = ShardKeys(context, stop)
        self._recreated = Recreated(context, renames, stop)
        self._registry = context.registry
        self._names = context.names
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
            "reshardCollection": self._reshard,
        }

    def apply(self, event: DefinitionEvent) -> None:
        """Apply a DDL event; ignore it if it changes no definition, or concerns no user namespace.

        Raises OperationError, with a name from the error table, if the event cannot be applied.
        """
        if not has_consequences(event):
            return
        action = self._actions.get(event.operation)
        if action is not None:
            action(event)
        elif self.concerns_sync(event):
            name = shown(event.namespace)
            place = f"on {name} on the source" if name else "on the source"
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"{event.operation} was run {place}; this version of syncsvc cannot apply this operation.",
            )

    def concerns_sync(self, event: DefinitionEvent) -> bool:
        """Return whether a DDL event of the source may change a record or the destination; see `concerns`."""
        return concerns(
            event,
            lambda uuid: self._registry.get(uuid) is not None,
            lambda names: bool(self._selection.of(names)),
        )

    def copy_again(self, record: CollectionRecord) -> None:
        """Copy a collection again, because the source has resharded or moved it without a change event.

        The caller must first wait until all events read so far are applied.
        """
        self._recreated.replace(record)

    def _create(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._define_view(event)
            return
        if event.namespace != event.namespace.owner:
            # The buckets alone are not a time-series collection yet, and never become one if the rest of the create
            # command fails.
            return
        record = self._registry.get(event.collection)
        if record is None:
            definition = CollectionSpec(
                event.namespace, Kind.COLLECTION, event.collection, event.description
            )
            if not self._selection.selects(definition.namespace) or self._recreated.is_one(event):
                return
            if self._renames.is_refused(definition) or not self._can_be_synced(definition):
                return
            wanted = destined(self._with_id_index(definition), self._target)
            record = new_record(self._registry, wanted, event.namespace, CopyStatus.DONE)
            # Save the record before creating the collection: if the process is killed in between, the next process
            # creates the collection, and there is never a collection without a record.
            self._registry.save(record)
        if self._renames.create_or_forget(record, self._catalog.create_bare):
            save_created(self._context, [record], self._stop)
            build_indexes(self._context, record, self._stop)

    def _can_be_synced(self, definition: CollectionSpec) -> bool:
        """Return whether a collection of the source can be synced with this definition.

        If it cannot be synced, return False if the source no longer has the collection; otherwise, raise the
        OperationError that says why.
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

    def _is_renamable(self, view: CollectionSpec) -> bool:
        """Return whether a view of the source can have its name on the destination.

        If it cannot have its name, return False if the source no longer has the view with this definition; otherwise,
        raise the OperationError that says why.
        """
        found = self._renames.violations(view)
        if found:
            present = find_named_on_source(self._context, view.namespace, self._stop)
            if present is not None and same_document(present.options, view.options):
                raise_all(found)
        return not found

    def _create_view(self, view: CollectionSpec) -> None:
        """Create or replace a view on the destination.

        Raises OperationError if the view cannot be synced, or if the destination refuses it; but not if the source no
        longer has a view with this name.
        """
        name = self._names.to_destination(view.namespace)
        try:
            check(view, self._target)
            # A view with another definition may exist. Either this event is newer, or later events replace the view.
            self._catalog.drop_view(name)
            self._catalog.create_views([destined(view, self._target)])
        except OperationError:
            found = find_named_on_source(self._context, view.namespace, self._stop)
            if found is not None and found.kind is Kind.VIEW:
                raise
            # `create_views` may have saved the definition before the destination refused the view. If it stayed saved,
            # a view that a user later creates with the same name and definition would count as the sync's own.
            self._context.views.forget(name)

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
        """Create or replace a view on the destination after a create or modify event, which holds the whole definition.

        A no-op if the filter excludes the view, or a collection has its name. If the view cannot have its name on the
        destination, and the source no longer has this definition, drop the destination's view instead. For the view of
        a time-series collection, copy the collection. Raises OperationError if the source still has the view or
        collection, but it cannot be synced.
        """
        if event.description["viewOn"] == event.namespace.buckets.collection:
            self._define_time_series(event)
            return
        if not self._selection.selects(event.namespace):
            return
        name = self._names.to_destination(event.namespace)
        if self._registry.at(name) is None:
            view = CollectionSpec(event.namespace, Kind.VIEW, None, event.description)
            if not self._is_renamable(view):
                # Later events drop or change the view.
                self._drop_view(event.namespace)
                return
            self._create_view(view)

    def _drop_view(self, name: Namespace) -> None:
        """Drop the destination's copy of the source's view `name`; a no-op if a collection has the copy's name there.

        Also a no-op if the view cannot be synced, because `namespaceRemap` gives its name to another namespace.
        """
        there = self._names.to_destination(name)
        if not self._names.is_taken(name) and self._registry.at(there) is None:
            self._catalog.drop_view(there)

    def _define_time_series(self, event: DefinitionEvent) -> None:
        """Copy a time-series collection whose view was created or modified; a no-op if it is already synced.

        The event does not contain the UUID of the collection's buckets, so it is looked up on the source. Also a no-op
        if the source no longer has the collection, or if the filter excludes it.
        """
        record = self._registry.at(self._names.to_destination(event.namespace))
        if record is None or record.status is not CopyStatus.DONE:
            uuid = time_series_on_source(self._context, event.namespace, self._stop)
            if uuid is not None:
                self._renames.adopt(uuid, event.namespace)

    def _drop(self, event: DefinitionEvent) -> None:
        if event.collection is not None:
            self._recreated.forget(event.namespace.owner, event.collection)
            self._drop_collection(event.collection)
            # Release the name even if an earlier process dropped the collection: it may have ended before this step.
            self._renames.release(self._names.to_destination(event.namespace))
            self._recreated.take_over(event.namespace.owner)
        else:
            self._drop_view(event.namespace)

    def _drop_collection(self, uuid: bytes) -> None:
        record = self._registry.get(uuid)
        if record is not None:
            self._renames.drop(record)

    def _drop_database(self, event: DefinitionEvent) -> None:
        """Drop the sync's views that come from a dropped database, and then each database that has become empty.

        The collections of the database have their own drop events; views have none. With `namespaceRemap`, the views
        may be in several databases of the destination. A destination with foreign data keeps its empty databases.
        """
        dropped = event.namespace.database
        for database in sorted(self._names.databases(dropped)):
            for name in self._catalog.views(database):
                if self._names.to_source(name).database == dropped:
                    self._catalog.drop_view(name)
            self._catalog.drop_empty_database(database)

    def _rename(self, event: DefinitionEvent) -> None:
        assert event.collection is not None and event.renamed is not None
        # `$out` into a time-series collection renames buckets.
        before, name = event.namespace.owner, event.renamed.owner
        if event.replaced is not None:
            self._drop_collection(event.replaced)
        self._recreated.forget(before, event.collection)
        self._renames.follow(event.collection, before, name)
        self._take_over_if_missing(event.collection, name)
        self._renames.release(self._names.to_destination(before))

    def _modify(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._define_view(event)
            return
        record = self._registry.get(event.collection)
        if record is not None:
            change = without(event.description, self._target.unknown_options)
            definition = self._modified(record, change)
            if self._can_be_synced(replace(definition, namespace=record.source_name)):
                self._redefine(record, definition)
                self._catalog.modify(definition.namespace, immediate(change))

    def _modified(self, record: CollectionRecord, change: Document) -> CollectionSpec:
        """Return a collection's definition after the collMod `change`.

        If the command has changed an index so that it cannot be synced, use the source's current definition of that
        index, or leave the index out if the source no longer has it. Raises OperationError if the current definition
        cannot be synced either.
        """
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
        """Return the definition of a collection with `indexes` as its only indexes, if `refuse` raises no error for it.

        The definition has the collection's name on the source. If `refuse` raises an OperationError, replace `indexes`
        by the source's current indexes with the same names: later events, which are not read yet, have changed or
        dropped them. If `refuse` raises an error for the new definition, too, raise that error. If the source no longer
        has the collection, return the definition without indexes instead.
        """
        definition = replace(record.on_source, indexes=indexes)
        try:
            refuse(definition, self._target)
        except OperationError:
            database = record.source_name.database
            found = find_on_source(self._context, database, record.uuid, self._stop)
            if found is None:
                return replace(definition, indexes={})
            kept = {name: found.indexes[name] for name in indexes if name in found.indexes}
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
        if event.collection is None:
            return
        record = self._registry.get(event.collection)
        if record is not None and record.is_copied:
            if self._shards(record, event):
                return
            self._renames.drop(record)
        # Copy the collection again, so that it is sharded while it is empty. If the process is killed in between, this
        # event is applied again, and finds no record or an unfinished copy.
        name = event.namespace.owner
        self._renames.adopt(event.collection, name)
        self._take_over_if_missing(event.collection, name)

    def _take_over_if_missing(self, uuid: bytes, name: Namespace) -> None:
        """Copy the source's collection `name` if the collection `uuid`, which had this name, is not synced.

        A sharded source may have resharded or moved the collection `uuid` before it could be copied. The new collection
        has another UUID, and no later event says that it exists.
        """
        if self._registry.get(uuid) is None:
            self._recreated.take_over(name)

    def _shards(self, record: CollectionRecord, event: DefinitionEvent) -> bool:
        """Shard a collection on the destination; return False if two documents there have the same unique shard key.

        The destination can hold such documents because they were read from the source at different times; a later event
        changes or deletes one of them.
        """
        unique = bool(event.description.get("unique"))
        try:
            self._shard_keys.shard(record, {"key": event.description["shardKey"], "unique": unique})
        except OperationError as error:
            cause = error.__cause__
            if isinstance(cause, OperationFailure) and cause.code == DUPLICATE_KEY:
                return False
            raise
        return True

    def _refine(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is not None:
            self._shard_keys.refine(record, event.description["shardKey"])

    def _reshard(self, event: DefinitionEvent) -> None:
        # From 8.0 on, moveCollection and unshardCollection have this event, too.
        record = self._known(event)
        if record is not None:
            self._recreated.replace(record)
        # Release the name even if an earlier process replaced the collection: it may have ended before this step.
        self._renames.release(self._names.to_destination(event.namespace.owner))

    def _redefine(self, record: CollectionRecord, definition: CollectionSpec) -> None:
        """Save a changed definition, then make the collection's indexes on the destination match it, or withhold them.

        The definition must be saved first, because the commit restores the original indexes from it.
        """
        build_indexes(
            self._context, self._registry.change(record, definition=definition), self._stop
        )

    def _known(self, event: DefinitionEvent) -> CollectionRecord | None:
        return None if event.collection is None else self._registry.get(event.collection)
