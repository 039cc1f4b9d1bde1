"""Changes definitions on a destination that may hold foreign data: collections and views not created by this sync.

A collection is the sync's own if its UUID is saved in the registry. A new collection gets a temporary name that only
this sync uses; its UUID is saved; then it gets its final name, which the server refuses if the name is taken. So even
after a crash, the temporary name or the saved UUID shows that the sync created the collection. Commands on an existing
collection contain its saved UUID, so the server refuses them for a foreign collection with the same name.

Some namespaces cannot be protected in this way. No server renames time-series collections. Collections with the option
`encryptedFields` can only be renamed on newer servers, by a user with the privilege `setUserWriteBlockMode`. So both
are created under their final names: if the process is killed or loses its connection before it has saved the UUID, the
new collection counts as foreign. Servers also do not accept the UUIDs of time-series collections in commands, so just
before each command, this module checks that the collection still has the saved UUID. A view is the sync's own if a
definition saved under its name equals its current one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bson.binary import Binary

from syncsvc.engine.definitions import standin
from syncsvc.engine.definitions.catalog import BY_UUID, Catalog, named_by, renamed_remedy
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from syncsvc.rules.taken_names import foreign_error
from syncsvc.saved.created_collections import temporary_prefix
from syncsvc.saved.registry import CollectionRecord, Registry
from verifier.cluster import failures
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind, same_document
from verifier.cluster.writer import MAJORITY
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


def catalog_of(
    context: RunContext,
    stop: StopToken,
    uuids: Mapping[Namespace, bytes] | None = None,
    write_concern: Mapping[str, Any] = MAJORITY,
) -> Catalog:
    """Return a SharedCatalog if the destination may hold foreign data, otherwise a Catalog.

    The parameters are those of `Catalog`.
    """
    shared = context.run.record.options.pre_existing_destination_data
    return (SharedCatalog if shared else Catalog)(context, stop, uuids, write_concern)


class SharedCatalog(Catalog):
    """A Catalog that neither changes nor drops foreign collections and views.

    Operations may also raise OperationError DestinationNamespaceExists: a foreign collection or view has the name that
    the sync needs.
    """

    @property
    def _registry(self) -> Registry:
        return self._context.registry

    def drop(self, namespace: Namespace) -> None:
        record = self._registry.at(namespace)
        if record is None:
            self.drop_view(namespace)
            return
        temporary = self._temporary(record)
        self._run(temporary, {"drop": temporary.collection}, failures.NAMESPACE_NOT_FOUND)
        if record.destination_uuid is not None and self._has(record, namespace):
            super().drop(namespace)

    def drop_view(self, namespace: Namespace) -> None:
        found = self._row(namespace)
        if found is None or self._is_own_view(namespace, found):
            self._discard_view(namespace, exists=found is not None)

    def own_views(self, found: Mapping[Namespace, Document]) -> dict[Namespace, Document]:
        saved = self._views.load()
        return {
            name: options
            for name, options in found.items()
            if any(same_document(each, options) for each in saved.get(name, ()))
        }

    def drop_empty_database(self, database: str) -> None:
        """Do nothing, because users may create a collection in the database at the same moment."""

    def create_views(self, definitions: Collection[CollectionSpec]) -> None:
        for each in definitions:
            self._refuse_foreign(each.namespace)
        super().create_views(definitions)

    def create_view(self, definition: CollectionSpec) -> bool:
        created = super().create_view(definition)
        if not created:
            self._refuse_foreign(definition.namespace)
        return created

    def rename(self, namespace: Namespace, to: Namespace) -> None:
        if namespace == to:
            return
        if namespace.database != to.database:
            # The source's change stream reports a rename to another database as the creation of a new collection. On
            # the destination, such a rename would create a collection with another UUID.
            raise OperationError(
                DEFINITION_NOT_APPLICABLE,
                f"On the destination, {namespace} would have to be renamed to {to}, which is in another database: a "
                "sync that was started with preExistingDestinationData cannot do this. A resume fails again: reset the "
                "sync (POST /api/v1/reset) and start it again.",
            )
        record = self._registry.at(namespace)
        assert record is not None
        self.drop_view(to)
        self._take_name(record, namespace, to)

    def _create(self, definition: CollectionSpec) -> bool:
        namespace = definition.namespace
        record = self._registry.at(namespace)
        assert record is not None
        self._free_of_view(namespace)
        if self._has(record, namespace):
            return False
        self._refuse_foreign(namespace)
        if definition.kind is Kind.TIME_SERIES or "encryptedFields" in definition.options:
            self._create_with_name(record, definition)
            return True
        temporary = self._temporary(record)
        options = standin.stand_in(definition).options
        self._run(temporary, {"create": temporary.collection, **options}, failures.NAMESPACE_EXISTS)
        self._observe(Point.TEMPORARY_CREATED, str(namespace))
        self._save_uuid(record, temporary)
        self._observe(Point.TEMPORARY_SAVED, str(namespace))
        self._take_name(self._newest(record), temporary, namespace)
        return True

    def _create_with_name(self, record: CollectionRecord, definition: CollectionSpec) -> None:
        """Create a collection under its final name, without a temporary one, and save its UUID."""
        namespace = definition.namespace
        command = {"create": namespace.collection, **standin.stand_in(definition).options}
        if self._run_create(namespace, command) is None:
            raise foreign_error(namespace)
        self._observe(Point.CREATED_WITH_NAME, str(namespace))
        self._save_uuid(record, definition.storage)

    def _by_uuid(self, namespace: Namespace, command: dict[str, Any]) -> dict[str, Any]:
        if next(iter(command)) not in BY_UUID or "collectionUUID" in command:
            return {}
        if self._uuids is not None and (known := super()._by_uuid(namespace, command)):
            # If users have renamed a collection of the sync, `uuids` contains its new name, but the registry does not.
            return known
        record = self._registry.at(named_by(command, namespace.database).owner)
        if record is None:
            # The command is for a view, or for a collection with a temporary name.
            return {}
        if record.destination_uuid is None:
            raise foreign_error(record.definition.namespace)
        if record.definition.kind is Kind.TIME_SERIES:
            if not self._has(record, record.definition.namespace):
                raise foreign_error(record.definition.namespace)
            return {}
        return {"collectionUUID": Binary(record.destination_uuid, 4)}

    def _take_name(self, record: CollectionRecord, namespace: Namespace, to: Namespace) -> None:
        """Rename the collection of a record from `namespace` to `to`; a no-op if it already has the new name.

        Both names are in the same database.
        """
        assert record.destination_uuid is not None
        uuid = Binary(record.destination_uuid, 4)
        command = {"renameCollection": str(namespace), "to": str(to), "collectionUUID": uuid}
        expected = (failures.NAMESPACE_NOT_FOUND, failures.NAMESPACE_EXISTS)
        renamed = self._run(Namespace("admin", str(namespace)), command, *expected)
        if renamed is None and not self._has(record, to):
            self._refuse_foreign(to)
            raise _lost(namespace, to)

    def _save_uuid(self, record: CollectionRecord, stored: Namespace) -> None:
        """Save the UUID of the collection named `stored` in its record; no-op if there is no such collection."""
        found = self._row(stored)
        if found is not None:
            self._registry.change(record, destination_uuid=bytes(found["info"]["uuid"]))

    def _newest(self, record: CollectionRecord) -> CollectionRecord:
        found = self._registry.get(record.uuid)
        assert found is not None
        return found

    def _refuse_foreign(self, namespace: Namespace) -> None:
        """Raise OperationError DestinationNamespaceExists if a foreign collection or view has this name."""
        found = self._row(namespace)
        if found is None or self._is_own_view(namespace, found):
            return
        record = self._registry.at(namespace)
        if record is None or not self._has(record, namespace):
            raise foreign_error(namespace)

    def _has(self, record: CollectionRecord, namespace: Namespace) -> bool:
        """Return whether the collection of `record` has the name `namespace` on the destination now."""
        time_series = record.definition.kind is Kind.TIME_SERIES
        found = self._row(namespace.buckets if time_series else namespace)
        if found is None and time_series:
            # MongoDB 9.0 can store a time-series collection under its own name.
            found = self._row(namespace)
        uuid = None if found is None else found["info"].get("uuid")
        return uuid is not None and bytes(uuid) == record.destination_uuid

    def _is_own_view(self, namespace: Namespace, found: Document) -> bool:
        is_view = found["type"] == Kind.VIEW.value
        return is_view and namespace in self.own_views({namespace: found["options"]})

    def _row(self, namespace: Namespace) -> Document | None:
        """Return the row of `listCollections` for a name; None if no collection or view on the destination has it."""
        return next(iter(self._list(namespace.database, {"name": namespace.collection})), None)

    def _temporary(self, record: CollectionRecord) -> Namespace:
        prefix = temporary_prefix(self._context.run.record)
        assert prefix is not None
        return Namespace(record.definition.namespace.database, prefix + record.uuid.hex())


def _lost(namespace: Namespace, to: Namespace) -> OperationError:
    return OperationError(
        DEFINITION_NOT_APPLICABLE,
        f"{namespace} cannot be renamed to {to} on the destination: neither name belongs to a collection of this sync "
        f"there, because a user dropped or renamed the collection. {renamed_remedy(namespace)}",
    )
