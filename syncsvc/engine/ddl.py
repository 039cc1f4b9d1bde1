"""What each definition event of the source means for the destination. Runs alone: all lanes are drained before.

Collections are known by UUID. An event of a UUID that the registry does not know is of a collection that was gone when
the collections were listed: it has nothing to change. Replaying an event again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from syncsvc.engine import standin
from syncsvc.engine.catalog import Catalog
from syncsvc.errors import UNSUPPORTED_CHANGE, UNSUPPORTED_COLLECTION
from syncsvc.store import CollectionRecord, CopyStatus, Registry
from verifier.cluster.connect import Client
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.inventory import list_collections
from verifier.cluster.namespace import is_user_database
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import OperationError


class DefinitionEvents:
    """Applies definition events to the registry and then to the destination."""

    def __init__(self, source: Client, catalog: Catalog, registry: Registry) -> None:
        self._source = source
        self._catalog = catalog
        self._registry = registry
        self._actions: dict[str, Callable[[DefinitionEvent], None]] = {
            "create": self._create,
            "drop": self._drop,
            "createIndexes": self._create_indexes,
            "dropIndexes": self._drop_indexes,
            # Its collections were dropped by events of their own; views and the empty database have nothing left.
            "dropDatabase": self._drop_database,
        }

    def apply(self, event: DefinitionEvent) -> None:
        """Raises OperationError UnsupportedChange for an event that this version cannot apply."""
        database, collection = event.namespace
        if not is_user_database(database) or collection.startswith("system."):
            return
        action = self._actions.get(event.operation)
        if action is None:
            raise OperationError(
                UNSUPPORTED_CHANGE, f"{event.operation} on {event.namespace} cannot be applied."
            )
        action(event)

    def _create(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._create_view(event)
            return
        record = self._registry.get(event.collection)
        if record is None:
            if self._registry.at(event.namespace) is not None:
                # A later collection has the name already, so this one is gone, and its events concern nobody.
                return
            record = self._register(event)
        self._catalog.create(record.definition)

    def _register(self, event: DefinitionEvent) -> CollectionRecord:
        definition = CollectionSpec(
            event.namespace, Kind.COLLECTION, event.collection, event.description
        )
        record = CollectionRecord(definition, CopyStatus.DONE)
        # Saved before it is created: a restart in between creates it, and never leaves it unknown.
        self._registry.save(record)
        return record

    def _create_view(self, event: DefinitionEvent) -> None:
        if str(event.description.get("viewOn", "")).startswith("system.buckets."):
            raise OperationError(
                UNSUPPORTED_COLLECTION,
                f"{event.namespace} was created as a time-series collection.",
            )
        if self._registry.at(event.namespace) is None:
            view = CollectionSpec(event.namespace, Kind.VIEW, None, event.description)
            # One of an older definition may be there: this event is newer, or later ones will tell.
            self._catalog.drop_view(event.namespace)
            self._catalog.create_view(view)

    def _drop(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            if self._registry.at(event.namespace) is None:
                self._catalog.drop_view(event.namespace)
            return
        record = self._registry.get(event.collection)
        if record is not None:
            self._catalog.drop(record.namespace)
            # After the drop: a restart in between drops again, and never forgets to.
            self._registry.remove(record)

    def _drop_database(self, event: DefinitionEvent) -> None:
        """Views do not announce their end, when their database is dropped."""
        self._catalog.drop_views(event.namespace.database)

    def _create_indexes(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is None:
            return
        created = {index["name"]: index for index in event.description["indexes"]}
        definition = replace(record.definition, indexes={**record.definition.indexes, **created})
        self._registry.save(replace(record, definition=definition))
        for name in standin.deferred_names(definition):
            # A twin that was built before makes way for the unique one, and is built again at commit.
            self._catalog.drop_index(record.namespace, name)
        plain = standin.stand_in(definition).indexes
        for name in created:
            if name in plain:
                self._build(definition, plain[name])

    def _build(self, definition: CollectionSpec, index: Document) -> None:
        try:
            self._catalog.create_indexes(definition, [index])
        except OperationError:
            # Documents that came after the index was dropped may be ones that it would refuse.
            if self._source_has(definition, index["name"]):
                raise

    def _source_has(self, definition: CollectionSpec, index: str) -> bool:
        listed = list_collections(self._source, definition.namespace.database)
        return any(each.uuid == definition.uuid and index in each.indexes for each in listed)

    def _drop_indexes(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is None:
            return
        names = {index["name"] for index in event.description["indexes"]}
        left = {
            name: index for name, index in record.definition.indexes.items() if name not in names
        }
        for name in names:
            self._catalog.drop_index(record.namespace, name)
        definition = replace(record.definition, indexes=left)
        self._registry.save(replace(record, definition=definition))
        # An index that had to wait for the dropped one can be built now.
        self._catalog.create_indexes(definition, standin.stand_in(definition).indexes.values())

    def _known(self, event: DefinitionEvent) -> CollectionRecord | None:
        return None if event.collection is None else self._registry.get(event.collection)
