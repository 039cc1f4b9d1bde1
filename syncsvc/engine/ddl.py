"""What each definition event of the source means for the destination. Runs alone: all lanes are drained before.

Collections are known by UUID. The definitions that were listed may be ahead of the events, which then lead up to them:
an event of a UUID that the registry does not know is of a collection that was gone when the collections were listed,
and a rename from a name that the collection does not have by now is one that the listing has seen. (From wherever in
its history a collection was listed, renames are followed from the first one on that starts at the listed name; so at
the end of the history both have the same name.) Replaying an event again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from syncsvc.engine.catalog import Catalog
from syncsvc.engine.copy import Copier
from syncsvc.engine.indexing import check_ttl, destined
from syncsvc.engine.modification import immediate, modified
from syncsvc.engine.naming import parked_for, place_for, placed
from syncsvc.engine.note import append_note
from syncsvc.engine.parts import Parts
from syncsvc.errors import RENAMED_OUT_OF_FILTER, UNSUPPORTED_CHANGE, UNSUPPORTED_COLLECTION
from syncsvc.store import CollectionRecord, CopyStatus
from verifier.cluster import failures
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.inventory import find_collection
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken


class DefinitionEvents:
    """Applies definition events to the registry and then to the destination."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._parts = parts
        self._catalog = Catalog(parts, stop)
        self._registry = parts.registry
        self._options = parts.run.record.options
        self._stop = stop
        self._not_synced: set[Namespace] = set()
        self._actions: dict[str, Callable[[DefinitionEvent], None]] = {
            "create": self._create,
            "drop": self._drop,
            "rename": self._rename,
            "modify": self._modify,
            "createIndexes": self._create_indexes,
            "dropIndexes": self._drop_indexes,
            "dropDatabase": self._drop_database,
        }

    def apply(self, event: DefinitionEvent) -> None:
        """Raises OperationError for an event that cannot be applied, by one of the names of the error table."""
        if not is_user_namespace(event.namespace):
            return
        if not self._parts.source_facts.tells_definitions:
            self._refuse(event.operation, event.namespace)
            self._refuse(event.operation, event.renamed or event.namespace)
            return
        action = self._actions.get(event.operation)
        if action is None:
            raise OperationError(
                UNSUPPORTED_CHANGE, f"{event.operation} on {event.namespace} cannot be applied."
            )
        action(event)

    def named(self, namespace: Namespace) -> CollectionRecord | None:
        """The collection of that name; None for one that is not synced.

        Raises OperationError UnsupportedChange for one that was created since the collections were listed. For sources
        that do not tell of it: there a name means one collection for as long as the sync runs.
        """
        record = self._registry.at(namespace)
        if record is None and namespace not in self._not_synced:
            if is_user_namespace(namespace):
                self._refuse("create", namespace)
            self._not_synced.add(namespace)
        return record

    def _refuse(self, operation: str, namespace: Namespace) -> None:
        """Raise OperationError UnsupportedChange for a change that this source does not tell in full."""
        if self._parts.selection.selects(namespace):
            version = ".".join(map(str, self._parts.source_facts.version))
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"{operation} on {namespace}: a source of version {version} does not tell enough of it.",
            )

    def _create(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._define_view(event)
            return
        record = self._registry.get(event.collection)
        if record is None:
            if not self._parts.selection.selects(event.namespace):
                return
            definition = CollectionSpec(
                event.namespace, Kind.COLLECTION, event.collection, event.description
            )
            record = placed(self._registry, definition, CopyStatus.DONE)
            # Saved before it is created: a restart in between creates it, and never leaves it unknown.
            self._registry.save(record)
        self._catalog.create(record.definition)

    def _define_view(self, event: DefinitionEvent) -> None:
        """A view was created or modified; either event holds its whole definition."""
        if str(event.description.get("viewOn", "")).startswith("system.buckets."):
            raise OperationError(
                UNSUPPORTED_COLLECTION,
                f"{event.namespace} was created as a time-series collection.",
            )
        if not self._parts.selection.selects(event.namespace):
            return
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
        self._drop_collection(event.collection)

    def _drop_collection(self, uuid: bytes) -> None:
        record = self._registry.get(uuid)
        if record is not None:
            self._catalog.drop(record.namespace)
            # After the drop: a restart in between drops again, and never forgets to.
            self._registry.remove(record)
            self._fill(record.namespace)

    def _drop_database(self, event: DefinitionEvent) -> None:
        """Its collections were dropped by events of their own; views do not announce their end."""
        self._catalog.drop_views(event.namespace.database)

    def _rename(self, event: DefinitionEvent) -> None:
        replaced = event.description.get("dropTarget")
        if replaced is not None:
            self._drop_collection(bytes(replaced))
        assert event.renamed is not None
        record = self._known(event)
        if record is None or record.status is not CopyStatus.DONE:
            self._adopt(event, event.renamed)
        elif record.source_name == event.namespace:
            if not self._parts.selection.selects(event.renamed):
                raise OperationError(
                    RENAMED_OUT_OF_FILTER, f"{event.namespace} was renamed to {event.renamed}."
                )
            self._move(record, event.renamed)

    def _adopt(self, event: DefinitionEvent, name: Namespace) -> None:
        """Copy a collection that comes into the filter under this name, from the source as it is now.

        It may be there in part, from before a restart. What was written to it meanwhile comes as events later.
        """
        assert event.collection is not None
        if not self._parts.selection.selects(name):
            return
        found = self._find(name.database, event.collection)
        if found is None:
            # Dropped since: all of its later events lead up to that.
            return
        record = self._registry.get(event.collection)
        if record is None:
            check_ttl(found, self._options)
            wanted = destined(replace(found, namespace=name), self._options.build_indexes)
            record = placed(self._registry, wanted, CopyStatus.WAITING)
            self._registry.save(record)
        self._catalog.create(record.definition)
        Copier(self._parts).run(append_note(self._parts.source, self._stop), self._stop)

    def _find(self, database: str, uuid: bytes) -> CollectionSpec | None:
        return retry(
            lambda: find_collection(self._parts.source, database, uuid),
            failures.is_transient,
            self._stop,
        )

    def _move(self, record: CollectionRecord, name: Namespace) -> None:
        """Keep the collection under the name that it has on the source from now on, or near it."""
        place = place_for(self._registry, name, record.uuid)
        # Before it is saved: the position is before this event, so a restart in between comes back to it.
        self._catalog.rename(record.namespace, place)
        options = {key: value for key, value in record.definition.options.items() if key != "temp"}
        definition = replace(record.definition, namespace=place, options=options)
        self._registry.save(replace(record, definition=definition, source_name=name))
        self._fill(record.namespace)

    def _fill(self, name: Namespace) -> None:
        """The name is free: whoever is parked for it takes it."""
        parked = parked_for(self._registry, name)
        if parked is not None and self._registry.at(name) is None:
            self._move(parked, name)

    def _modify(self, event: DefinitionEvent) -> None:
        if event.collection is None:
            self._define_view(event)
            return
        record = self._known(event)
        if record is not None:
            definition = modified(record.definition, event.description)
            if "index" in event.description:
                index = event.description["index"]
                check_ttl(replace(definition, indexes={index["name"]: index}), self._options)
            self._redefine(record, definition)
            self._catalog.modify(definition.namespace, immediate(event.description))

    def _create_indexes(self, event: DefinitionEvent) -> None:
        record = self._known(event)
        if record is not None:
            listed = {index["name"]: index for index in event.description["indexes"]}
            created = replace(record.definition, indexes=listed)
            check_ttl(created, self._options)
            new = destined(created, self._options.build_indexes).indexes
            indexes = {**record.definition.indexes, **new}
            self._redefine(record, replace(record.definition, indexes=indexes))

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

    def _redefine(self, record: CollectionRecord, definition: CollectionSpec) -> None:
        """What is to be put back at commit is saved before it is taken away."""
        self._registry.save(replace(record, definition=definition))
        self._catalog.reconcile_indexes(definition)

    def _known(self, event: DefinitionEvent) -> CollectionRecord | None:
        return None if event.collection is None else self._registry.get(event.collection)
