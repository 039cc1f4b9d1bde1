"""Renames of the source's collections: the resulting names on the destination, and collections that enter the filter.

The collections are listed after the start of the stream, so a listed name may be the result of renames whose events
come later. A rename from a name that the collection does not have in the registry is therefore ignored. The first
rename that starts at the listed name, and all later ones, are followed: so at the end of the events, both sides have
the same name.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from syncsvc.engine.copying.copy import copy_all
from syncsvc.engine.copying.partitioned import plan_copy, settle
from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.created import created_uuid, save_created
from syncsvc.engine.definitions.naming import destination_name, new_record, parked_for
from syncsvc.engine.definitions.source_lookup import find_on_source
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import RENAMED_ACROSS_DATABASES, RENAMED_OUT_OF_FILTER
from syncsvc.indexing import check, destined
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.shard_rules import key_of
from verifier.cluster.namespace import Namespace
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)


class Renames:
    """Applies renames of the source's collections, in the registry and on the destination."""

    def __init__(self, context: RunContext, catalog: Catalog, stop: StopToken) -> None:
        self._context = context
        self._catalog = catalog
        self._registry = context.registry
        self._stop = stop

    def follow(self, uuid: bytes, before: Namespace, name: Namespace) -> None:
        """Apply the rename of a collection from `before` to `name`; a no-op if its record has another name.

        A collection that is not synced yet is adopted. A temporary collection that leaves the filter is dropped. Raises
        OperationError RenamedOutOfFilter, unless the source has dropped the collection, and RenamedAcrossDatabases.
        """
        record = self._registry.get(uuid)
        if record is None or record.status is not CopyStatus.DONE:
            self.adopt(uuid, name)
        elif record.source_name == before:
            if self._context.selection.selects(name):
                self._refuse_across_databases(before, name)
                self._move(record, name)
            elif _is_temporary(record):
                self.drop(record)
            elif find_on_source(self._context, before.database, uuid, self._stop) is not None:
                # Even if it was renamed back: its events under the other name are not in the stream.
                raise OperationError(
                    RENAMED_OUT_OF_FILTER,
                    f"On the source, {before} was renamed to {name}, which the filter excludes.",
                )

    def _refuse_across_databases(self, before: Namespace, name: Namespace) -> None:
        """Raise OperationError RenamedAcrossDatabases for a rename across databases if the sync has sharding entries.

        For such a rename, the server creates, fills and renames a new collection, which would not be sharded.
        """
        if self._context.run.record.options.sharding is not None and _is_moved(before):
            raise OperationError(
                RENAMED_ACROSS_DATABASES,
                f"On the source, a collection of another database was renamed to {name}.",
            )

    def drop(self, record: CollectionRecord) -> None:
        self._catalog.drop(record.definition.namespace)
        # Removed after the drop: a restart in between drops the collection again, and never forgets it.
        self._registry.remove(record)
        self.release(record.definition.namespace)

    def release(self, name: Namespace) -> None:
        """Rename the collection that is parked for a name to that name, if the name is free on the destination.

        No-op if no collection is parked for it.
        """
        parked = parked_for(self._registry, name)
        if parked is not None and self._registry.at(name) is None:
            self._move(parked, name)

    def _move(self, record: CollectionRecord, name: Namespace) -> None:
        """Rename the destination's collection to `name`, its new name on the source, and save its record.

        If another collection has `name` on the destination, use a temporary ("parked") name instead. Then give the old
        name to the collection that is parked because of it, if there is one.
        """
        kept_as = destination_name(self._registry, name, record.uuid)
        # Renamed before it is saved: the position is before this event, so a restart in between repeats it.
        self._catalog.rename(record.definition.namespace, kept_as)
        options = {key: value for key, value in record.definition.options.items() if key != "temp"}
        definition = replace(record.definition, namespace=kept_as, options=options)
        uuid = record.destination_uuid
        if name.database != record.definition.namespace.database:
            # For such a rename, servers create a new collection.
            uuid = created_uuid(self._context, kept_as, self._stop)
        self._registry.save(
            replace(record, definition=definition, source_name=name, destination_uuid=uuid)
        )
        if not definition.shard_key and key_of(name, self._context.run.record.options.sharding):
            _log.warning(
                "A collection of shardingEntries was replaced by another one in a rename. The new one is not "
                "sharded on the destination; you can shard it after the commit.",
                extra={"namespace": str(name)},
            )
        self.release(record.definition.namespace)

    def adopt(self, uuid: bytes, name: Namespace) -> None:
        """Save a record of a collection that becomes part of the sync under this name, and copy it as it is now.

        A no-op if the filter excludes the name, or the source no longer has the collection. Part of the collection may
        already exist on the destination, if a process was killed during this call. Later writes to it arrive as events.
        """
        if not self._context.selection.selects(name):
            return
        found = find_on_source(self._context, name.database, uuid, self._stop)
        if found is None:
            # It has been dropped since, and all of its later events lead up to that.
            return
        record = self._registry.get(uuid)
        if record is None:
            target = self._context.target
            found = replace(found, namespace=name)
            check(found, target)
            wanted = destined(found, target)
            # Left over from a time when it was synced before.
            self._context.partitions.forget(uuid)
            record = new_record(
                self._registry, wanted, CopyStatus.WAITING, source_key=found.shard_key
            )
            self._registry.save(record)
        self._catalog.create(record.present)
        save_created(self._context, [record], self._stop)
        plan_copy(self._context, self._stop)
        copy_all(self._context, self._stop)
        # A later rename follows only a collection whose copy is recorded as done.
        settle(self._context)


def _is_temporary(record: CollectionRecord) -> bool:
    """Return whether the server made the collection as an intermediate step of `$out` or a rename across databases."""
    return bool(record.definition.options.get("temp")) or _is_moved(record.source_name)


def _is_moved(name: Namespace) -> bool:
    """Return whether the server gave the name to a collection that it moves to another database."""
    collection = name.collection
    return collection.startswith("tmp") and collection.endswith(".renameCollection")
