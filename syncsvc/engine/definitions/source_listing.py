"""Lists the source's collections and views, and creates them on the destination as stand-ins."""

from __future__ import annotations

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.created import save_created
from syncsvc.engine.definitions.naming import new_record
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.indexing import definition_violations, destined
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.inventory import Size, extent, list_collections
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind, same_document
from verifier.runtime.errors import raise_all
from verifier.runtime.tasks import StopToken, for_each


class SourceListing:
    """Lists the collections and views of the source, and creates them on the destination.

    Must run after the start of the change stream is saved: later changes then arrive as events.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._source_client = context.source_client
        self._catalog = Catalog(context, stop)
        self._facts = context.source_facts
        self._registry = context.registry
        self._partitions = context.partitions
        self._selection = context.selection
        self._options = context.run.record.options
        self._observe = context.observe
        self._stop = stop

    def run(self) -> None:
        """List the source's collections and views, save the collections' records, and create all on the destination.

        Raises OperationError UnsupportedCollection, TTLNotVerifiable and other errors of definitions that cannot be
        synced.
        """
        listed = read(
            lambda: list(list_collections(self._source_client, self._selection)),
            self._stop,
        )
        # Checked again: the source may have changed since the start request was checked.
        raise_all(definition_violations(self._context.target, self._facts, listed))
        collections = [each for each in listed if each.kind is not Kind.VIEW]
        self._forget_outdated(collections)
        self._record(collections)
        for_each("create", collections, self._create, self._context.definition_threads, self._stop)
        save_created(self._context, self._registry, self._stop)
        # Views come last, when their collections exist.
        views = [each for each in listed if each.kind is Kind.VIEW]
        self._context.views.add(views)
        for definition in views:
            self._catalog.create_view(definition)

    def _forget_outdated(self, collections: list[CollectionSpec]) -> None:
        """Drop and forget the recorded collections that the source no longer has, or has with another definition.

        An earlier listing that failed or was interrupted has recorded them. A definition that the destination has
        refused must not be tried again if the source no longer has it. If the source has dropped a collection, another
        one may have its name now, which the drop event of the old collection must not drop.
        """
        present = {each.uuid: each for each in collections}
        for record in self._registry:
            if not self._is_recorded(record, present.get(record.uuid)):
                self._catalog.drop(record.definition.namespace)
                self._partitions.forget(record.uuid)
                self._registry.remove(record)

    def _is_recorded(self, record: CollectionRecord, present: CollectionSpec | None) -> bool:
        """Return whether `record` holds this definition of the source, under its name there."""
        if present is None or record.source_name != present.namespace:
            return False
        known, wanted = record.definition, destined(present, self._context.target)
        return same_document(
            [known.options, known.indexes, known.shard_key, record.source_key],
            [wanted.options, wanted.indexes, wanted.shard_key, present.shard_key or None],
        )

    def _record(self, collections: list[CollectionSpec]) -> None:
        """Save a record of each collection that has none: its definition after the commit, and the size of its data."""
        new = [each for each in collections if self._registry.get(_uuid(each)) is None]
        amounts: dict[bytes, Size] = {}

        def measure(definition: CollectionSpec, stop: StopToken) -> None:
            found = read(lambda: extent(self._source_client, definition.storage), stop)
            amounts[_uuid(definition)] = found

        for_each("measure", new, measure, self._context.load.readers, self._stop)
        self._registry.save_all(
            new_record(
                self._registry,
                destined(each, self._context.target),
                CopyStatus.WAITING,
                amounts[_uuid(each)],
                source_key=each.shard_key,
            )
            for each in new
        )

    def _create(self, definition: CollectionSpec, stop: StopToken) -> None:
        """Create a collection as a stand-in. Its record must be saved before, so that no collection lacks a record."""
        record = self._registry.get(_uuid(definition))
        assert record is not None
        catalog = Catalog(self._context, stop)
        if self._options.build_indexes.after_copy:
            catalog.create_bare(record.definition)
        else:
            catalog.create(record.present)
        self._observe(Point.COLLECTION_CREATED, str(definition.namespace))


def _uuid(definition: CollectionSpec) -> bytes:
    assert definition.uuid is not None
    return definition.uuid
