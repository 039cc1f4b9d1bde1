"""Applies renames of the source's collections, and copies collections that become part of the sync after its start.

The collections are listed after the start of the stream, so a listed name may be the result of renames whose events
come later. A rename of a copied collection is therefore ignored if it starts at another name than the one in the
registry. The first rename that starts at the listed name, and all later ones, are followed. So once all events are
applied, the collection has the same name on both clusters, apart from the renames of `namespaceRemap`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace

from syncsvc.engine.copying.copy import copy_all
from syncsvc.engine.copying.partitioned import plan_copy, settle
from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.created import created_uuid, save_created
from syncsvc.engine.definitions.naming import (
    destination_name,
    new_record,
    parked_for,
    parked_name,
)
from syncsvc.engine.definitions.other_case import case_violations
from syncsvc.engine.definitions.source_lookup import (
    find_named_on_source,
    find_on_source,
    has_name_on_source,
    size_on_source,
)
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import RENAMED_ACROSS_DATABASES, RENAMED_OUT_OF_FILTER
from syncsvc.options import RenamedOut
from syncsvc.rules.indexing import (
    check,
    destined,
    length_violations,
    rename_violations,
    text_violations,
)
from syncsvc.rules.sharding import key_of
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.namespace import UUID_PATTERN, Namespace
from verifier.cluster.note import append_note
from verifier.cluster.specification import CollectionSpec, Kind, is_undecodable
from verifier.runtime.errors import OperationError, Violation, raise_all
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# Matches the names of the temporary collections that servers create for `$out`.
_OUT = re.compile(rf"tmp\.agg_out\.{UUID_PATTERN}").fullmatch


class Renames:
    """Applies renames of the source's collections, in the registry and on the destination."""

    def __init__(self, context: RunContext, catalog: Catalog, stop: StopToken) -> None:
        self._context = context
        self._catalog = catalog
        self._registry = context.registry
        self._names = context.names
        self._options = context.run.record.options
        self._stop = stop

    def follow(self, uuid: bytes, before: Namespace, name: Namespace) -> None:
        """Apply the rename of the source's collection `uuid` from `before` to `name`, both names on the source.

        - If the collection is not synced or not completely copied yet, it is copied under its new name (see `adopt`).
        - Otherwise, the call is a no-op if the name in the record of the collection is not `before`.
        - If the filter selects the new name, the collection is renamed on the destination. If the new name has another
          document filter or leads to another database, the collection is copied again instead.
        - If the filter excludes the new name, the collection is dropped if it is temporary, the start options say so,
          or the source no longer has it. Otherwise, OperationError RenamedOutOfFilter is raised.

        Also raises OperationError RenamedAcrossDatabases; the errors of `adopt`; and if the collection cannot have its
        new name on the destination: NamespaceCollision, NotRenamable, CollectionNotShardable,
        DestinationNamespaceExists and DefinitionNotApplicable. If the source no longer has the collection under that
        name, the collection is dropped instead.
        """
        record = self._registry.get(uuid)
        if record is None or record.status is not CopyStatus.DONE:
            self.adopt(uuid, name)
        elif record.source_name == before:
            if self._context.selection.selects(name):
                self._refuse_across_databases(before, name)
                self._follow_in_filter(record, name)
            elif is_temporary(record) or self._options.renamed_out is RenamedOut.DROP:
                self._drop_renamed_out(record, name)
            elif find_on_source(self._context, before.database, uuid, self._stop) is not None:
                # Raise the error even if the collection was renamed back: its events under the excluded name are not in
                # the stream.
                raise renamed_out(before, name)
            else:
                # Do not wait for the drop event: until then, the record would hide a new collection with the old name.
                self.drop(record)

    def _follow_in_filter(self, record: CollectionRecord, name: Namespace) -> None:
        """Rename a collection on the destination. If it cannot have its new name, drop it, or raise an error.

        It is dropped only if the source no longer has it under that name. If the new name has another document filter,
        or leads to another database on the destination, drop the collection and copy it again under the new name. If
        the process is killed between the drop and the copy, the repeated event copies the collection. For the errors,
        see `follow`.
        """
        before, filters = record.source_name, self._context.document_filters
        if self.is_refused(replace(record.on_source, namespace=name)):
            self.drop(record)
        elif self._leaves_database(before, name) or not filters.selects_alike(before, name):
            # For a rename to another database of the destination, the server would fill a new collection, whose UUID no
            # record contains yet. With another document filter, other documents are needed: for example, $out fills a
            # collection under a temporary name, to which no document filter applies, and then renames it.
            self.drop(record)
            self.adopt(record.uuid, name)
        else:
            self._move(record, name)

    def _refuse_across_databases(self, before: Namespace, name: Namespace) -> None:
        """Raise OperationError RenamedAcrossDatabases for a rename across databases if the option `sharding` is set.

        For such a rename, the server creates, fills and renames a new collection, which would not be sharded.
        """
        if self._options.sharding is not None and _is_moved(before):
            raise OperationError(
                RENAMED_ACROSS_DATABASES,
                f"On the source, a collection of another database was renamed to {name}.",
            )

    def violations(self, definition: CollectionSpec) -> list[Violation]:
        """Return the reasons why a collection or view cannot have its name on the destination.

        `definition` is its definition on the source, with the name to check.
        """
        name = definition.namespace
        # Events and listings contain U+FFFD in place of invalid bytes, but a search for that name finds nothing.
        is_invalid = (
            is_undecodable(name) and find_named_on_source(self._context, name, self._stop) is None
        )
        return [
            *(text_violations(definition) if is_invalid else ()),
            *rename_violations(definition, self._context.target),
            *length_violations(definition, self._context.target),
            *case_violations(self._context, name, self._stop),
        ]

    def is_refused(self, definition: CollectionSpec) -> bool:
        """Return whether a collection cannot have its name on the destination (see `violations`).

        Raises OperationError if it cannot have its name, but the source still has the collection under the name in
        `definition`. So if the result is True, later events drop or rename the collection.
        """
        found = self.violations(definition)
        if found:
            name, uuid = definition.namespace, definition.uuid
            assert uuid is not None
            if has_name_on_source(self._context, uuid, name, self._stop):
                raise_all(found)
        return bool(found)

    def create_or_forget(
        self, record: CollectionRecord, create: Callable[[CollectionSpec], object]
    ) -> bool:
        """Call `create`, which creates the collection of `record` on the destination if it is missing; return True.

        If the destination refuses the collection, and the source no longer has it under this name, drop the collection
        and its record, and return False: if the collection was renamed, the event of the rename copies it. If the
        source still has it under this name, raise OperationError.
        """
        try:
            create(record.current_definition)
        except OperationError:
            if has_name_on_source(self._context, record.uuid, record.source_name, self._stop):
                raise
            self.drop(record)
            return False
        return True

    def _leaves_database(self, before: Namespace, name: Namespace) -> bool:
        """Return whether a rename within a database of the source leads to another database on the destination."""
        there = self._names.to_destination(before), self._names.to_destination(name)
        return before.database == name.database and there[0].database != there[1].database

    def _drop_renamed_out(self, record: CollectionRecord, name: Namespace) -> None:
        if not is_temporary(record):
            _log.warning(
                "A collection was renamed on the source to a name that the filter excludes. The collection is dropped "
                "on the destination, because renamedOutOfFilter is drop. If users rename the collection back, it is "
                "copied again.",
                extra={"namespace": str(record.source_name), "renamed": str(name)},
            )
        self.drop(record)

    def drop(self, record: CollectionRecord) -> None:
        self._remove(record)
        self.release(record.definition.namespace)

    def _remove(self, record: CollectionRecord) -> None:
        """Drop a collection on the destination, and remove its record, but give its name to no other collection."""
        self._catalog.drop(record.definition.namespace)
        # Remove the record after the drop: if the process is killed in between, the next one drops the collection
        # again.
        self._registry.remove(record)
        self._context.progress.collections.forget(record.uuid)
        self._context.observe(Point.RECORD_REMOVED, str(record.source_name))

    def vacate(self, record: CollectionRecord) -> CollectionRecord:
        """Drop a collection on the destination, and save a temporary name in its record, which is kept and returned.

        Another collection can then have the former name at once.
        """
        name = record.definition.namespace
        self._catalog.drop(name)
        definition = replace(record.definition, namespace=parked_name(name, record.uuid))
        return self._registry.change(record, definition=definition)

    def release(self, name: Namespace) -> None:
        """If `name` is free on the destination, give it to the collection that waits for it under a temporary name.

        No-op if no collection waits for `name`.
        """
        parked = parked_for(self._registry, self._names, name)
        if parked is not None and self._registry.at(name) is None:
            self._move(parked, parked.source_name)

    def release_all(self) -> None:
        """Give each name that is free on the destination to the collection that waits for it under a temporary name.

        Such a collection exists only if an earlier process was killed before its call of `release`. Time-series
        collections have temporary names for another reason, and keep them (see `vacate`).
        """
        for record in self._registry:
            wanted = self._names.to_destination(record.source_name)
            is_parked = record.definition.namespace != wanted
            if is_parked and record.definition.kind is not Kind.TIME_SERIES:
                self.release(wanted)

    def _move(self, record: CollectionRecord, name: Namespace) -> None:
        """Rename a collection on the destination, because its name on the source is `name` now, and save its record.

        If another collection has the resulting name on the destination, use a temporary ("parked") name instead. Then,
        if a parked collection waits for the name that has become free, rename the parked collection.
        """
        wanted = self._names.to_destination(name)
        kept_as = destination_name(self._registry, wanted, record.uuid)
        # Rename the collection before saving its record: the saved position is before this event, so if the process is
        # killed in between, the next one repeats the rename.
        self._catalog.rename(record.definition.namespace, kept_as)
        options = {key: value for key, value in record.definition.options.items() if key != "temp"}
        definition = replace(record.definition, namespace=kept_as, options=options)
        uuid = record.destination_uuid
        if kept_as.database != record.definition.namespace.database:
            # For a rename to another database, servers create a new collection.
            uuid = created_uuid(self._context, kept_as, self._stop)
        self._registry.save(
            replace(record, definition=definition, source_name=name, destination_uuid=uuid)
        )
        if not definition.shard_key and key_of(name, self._options.sharding):
            _log.warning(
                "A collection was renamed on the source to a name in shardingEntries. It is not sharded on the "
                "destination; you can shard it after the commit.",
                extra={"namespace": str(name)},
            )
        self.release(record.definition.namespace)

    def adopt(self, uuid: bytes, name: Namespace) -> None:
        """Add the source's collection `uuid` to the sync as `name`: save its record, and copy the collection.

        A no-op if the filter excludes `name`, or if the source no longer has the collection in the database of `name`.
        If the source has renamed the collection within this database, it is still copied as `name`, and a later event
        renames it; but if it cannot have `name` on the destination, the call is a no-op. If a process was killed during
        such a call, this call continues the copy, or begins it again if it was begun under another name. Later writes
        to the collection arrive as events. Raises OperationError if the collection cannot be synced or copied.
        """
        if not self._context.selection.selects(name):
            return
        self._context.progress.set(adopts_collection=True)
        try:
            self._adopt(uuid, name)
            adopted_until = append_note(self._context.destination_client, self._stop)
            self._context.progress.set(adopted_until=adopted_until)
        finally:
            self._context.progress.set(adopts_collection=False)

    def _adopt(self, uuid: bytes, name: Namespace) -> None:
        found = find_on_source(self._context, name.database, uuid, self._stop)
        if found is None or self.is_refused(replace(found, namespace=name)):
            # The source has dropped or renamed the collection since: the change event about this follows.
            return
        record = self._registry.get(uuid)
        if record is not None and record.source_name != name:
            # With the earlier name, the collection may have another name or database on the destination, or another
            # document filter.
            self.drop(record)
            record = None
        if record is None:
            target = self._context.target
            found = replace(found, namespace=name)
            check(found, target)
            wanted = destined(found, target)
            self._free_for_time_series(wanted)
            # Partitions may be left from a time when the collection was synced before.
            self._context.partitions.forget(uuid)
            record = new_record(
                self._registry,
                wanted,
                name,
                CopyStatus.WAITING,
                size_on_source(self._context, found, self._stop),
                found.shard_key,
            )
            self._registry.save(record)
        if not self.create_or_forget(record, self._catalog.create):
            return
        save_created(self._context, [record], self._stop)
        plan_copy(self._context, self._stop)
        copy_all(self._context, self._stop)
        # `follow` renames only collections whose copy is recorded as done.
        settle(self._context)

    def _free_for_time_series(self, wanted: CollectionSpec) -> None:
        """Remove the collection that has the name of `wanted` on the destination, if `wanted` is a new time series.

        Servers cannot rename time-series collections, so `wanted` must not get a temporary name. The source no longer
        has the other collection under this name. For example, users dropped that collection, and the process was killed
        while it copied that collection, before it read the drop event. If users renamed that collection, the event of
        the rename copies it again; if the filter excludes the new name, it is dropped without the error
        RenamedOutOfFilter.
        """
        holder = self._registry.at(wanted.namespace)
        if wanted.kind is Kind.TIME_SERIES and holder is not None:
            self._remove(holder)


def renamed_out(before: Namespace, name: Namespace) -> OperationError:
    """Return the error RenamedOutOfFilter for a rename from `before` to `name`, which the filter excludes."""
    return OperationError(
        RENAMED_OUT_OF_FILTER,
        f"On the source, {before} was renamed to {name}, which the filter excludes.",
    )


def is_temporary(record: CollectionRecord) -> bool:
    """Return whether the server created the collection as a temporary one, such as for `$out`.

    Renames to another database also fill a temporary collection first.
    """
    # From 8.0 on, shards do not mark the temporary collections of `$out`.
    name = record.source_name
    marked = bool(record.definition.options.get("temp"))
    return marked or _is_moved(name) or _OUT(name.collection) is not None


def _is_moved(name: Namespace) -> bool:
    """Return whether `name` is the temporary name of a collection that the server moves to another database."""
    collection = name.collection
    return collection.startswith("tmp") and collection.endswith(".renameCollection")
