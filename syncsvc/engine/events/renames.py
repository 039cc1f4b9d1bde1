"""Renames of the source's collections: which name each has on the destination, and who comes into a filter by one.

The definitions that were listed may be ahead of the events: a rename from a name that the collection does not have by
now is one that the listing has seen. (From wherever in its history a collection was listed, renames are followed from
the first one on that starts at the listed name; so at the end of the history both have the same name.)
"""

from __future__ import annotations

import logging
from dataclasses import replace

from syncsvc.engine.copying.copy import copy_all
from syncsvc.engine.copying.partitioned import plan_copy
from syncsvc.engine.definitions.catalog import Catalog
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
    """Follows renames, in the registry and on the destination."""

    def __init__(self, context: RunContext, catalog: Catalog, stop: StopToken) -> None:
        self._context = context
        self._catalog = catalog
        self._registry = context.registry
        self._stop = stop

    def follow(self, uuid: bytes, before: Namespace, name: Namespace) -> None:
        """The collection had one name and has another.

        Raises OperationError RenamedOutOfFilter and RenamedAcrossDatabases.
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
            else:
                raise OperationError(RENAMED_OUT_OF_FILTER, f"{before} was renamed to {name}.")

    def _refuse_across_databases(self, before: Namespace, name: Namespace) -> None:
        """It is a new collection there, which the server fills and renames: none that is sharded."""
        if self._context.run.record.options.sharding is not None and _is_moved(before):
            raise OperationError(
                RENAMED_ACROSS_DATABASES, f"{name} was renamed to that from another database."
            )

    def drop(self, record: CollectionRecord) -> None:
        self._catalog.drop(record.definition.namespace)
        # After the drop: a restart in between drops again, and never forgets to.
        self._registry.remove(record)
        self.release(record.definition.namespace)

    def release(self, name: Namespace) -> None:
        """The name became free on the destination: whoever is parked for it takes it."""
        parked = parked_for(self._registry, name)
        if parked is not None and self._registry.at(name) is None:
            self._move(parked, name)

    def _move(self, record: CollectionRecord, name: Namespace) -> None:
        """Keep the collection under the name that it has on the source from now on, or near it."""
        kept_as = destination_name(self._registry, name, record.uuid)
        # Before it is saved: the position is before this event, so a restart in between comes back to it.
        self._catalog.rename(record.definition.namespace, kept_as)
        options = {key: value for key, value in record.definition.options.items() if key != "temp"}
        definition = replace(record.definition, namespace=kept_as, options=options)
        self._registry.save(replace(record, definition=definition, source_name=name))
        if not definition.shard_key and key_of(name, self._context.run.record.options.sharding):
            _log.warning(
                "A collection of shardingEntries was replaced by one that is not sharded.",
                extra={"namespace": str(name)},
            )
        self.release(record.definition.namespace)

    def adopt(self, uuid: bytes, name: Namespace) -> None:
        """Copy a collection that comes to be synced under this name, from the source as it is now.

        It may be there in part, from before a restart. What was written to it meanwhile comes as events later.
        """
        if not self._context.selection.selects(name):
            return
        found = find_on_source(self._context, name.database, uuid, self._stop)
        if found is None:
            # Dropped since: all of its later events lead up to that.
            return
        record = self._registry.get(uuid)
        if record is None:
            options = self._context.run.record.options
            found = replace(found, namespace=name)
            check(found, options)
            wanted = destined(found, options)
            # Of a time when it was synced before.
            self._context.partitions.forget(uuid)
            record = new_record(self._registry, wanted, CopyStatus.WAITING)
            self._registry.save(record)
        self._catalog.create(record.present)
        plan_copy(self._context, self._stop)
        copy_all(self._context, self._stop)


def _is_temporary(record: CollectionRecord) -> bool:
    """Whether the server made the collection on the way to another one: `$out` does, and a rename across databases."""
    return bool(record.definition.options.get("temp")) or _is_moved(record.source_name)


def _is_moved(name: Namespace) -> bool:
    """Whether the server gave the name to what it moves to another database."""
    collection = name.collection
    return collection.startswith("tmp") and collection.endswith(".renameCollection")
