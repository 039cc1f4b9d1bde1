"""Lists the source's collections and views, and creates them on the destination (collections as stand-ins)."""

from __future__ import annotations

from syncsvc.engine.definitions.created import destination_contents, save_created
from syncsvc.engine.definitions.naming import new_record
from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.definitions.source_lookup import size_on_source
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.rules.indexing import definition_violations, destined
from syncsvc.rules.taken_names import taken, taken_violations
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.inventory import Size, list_collections
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind, same_document
from verifier.runtime.errors import raise_all
from verifier.runtime.tasks import StopToken, for_each


class SourceListing:
    """Lists the collections and views of the source, and creates them on the destination.

    Collections get relaxed options and indexes until the commit. Call `run` only after the position at which the change
    stream begins is saved: later writes then arrive as events.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._source_client = context.source_client
        self._catalog = catalog_of(context, stop)
        self._facts = context.source_facts
        self._registry = context.registry
        self._partitions = context.partitions
        self._selection = context.selection
        self._options = context.run.record.options
        self._observe = context.observe
        self._stop = stop

    def run(self) -> None:
        """List the source's collections and views, save records of the collections, and create them on the destination.

        Collections that an earlier, unfinished call created are dropped first if they are outdated.

        Raises OperationError UnsupportedCollection, TTLNotVerifiable and other errors of definitions that cannot be
        synced, DocumentFilterFailed, and DestinationNamespaceExists if the destination has foreign data under a needed
        name.
        """
        listed = read(
            lambda: list(list_collections(self._source_client, self._selection)),
            self._stop,
        )
        # Check the definitions again: the source may have changed since the start request was checked.
        raise_all(definition_violations(self._context.target, self._facts, listed))
        self._refuse_taken(listed)
        collections = [each for each in listed if each.kind is not Kind.VIEW]
        self._forget_outdated(collections)
        self._record(collections)
        for_each("create", collections, self._create, self._context.definition_threads, self._stop)
        save_created(self._context, self._registry, self._stop)
        # Views come last, when their collections exist.
        views = [destined(each, self._context.target) for each in listed if each.kind is Kind.VIEW]
        self._catalog.create_views(views)

    def _refuse_taken(self, listed: list[CollectionSpec]) -> None:
        """Raise OperationError DestinationNamespaceExists if foreign data has a name that one of `listed` needs.

        A no-op unless the start options allow other data on the destination. The start has already checked this, but
        users may have created collections or views on the destination since.
        """
        if self._options.pre_existing_destination_data:
            context = self._context
            found = destination_contents(context, context.views.load(), self._stop).others
            needed = (context.names.to_destination(each.namespace) for each in listed)
            sharded = context.destination_facts.is_sharded
            names = taken((each.namespace for each in found), needed, sharded)
            raise_all(taken_violations(names))

    def _forget_outdated(self, collections: list[CollectionSpec]) -> None:
        """Drop outdated collections on the destination, and remove their records.

        A recorded collection is outdated if the source no longer has it, or has it with another name or definition. An
        earlier listing that failed or was interrupted has saved these records. A definition that the destination has
        refused must not be tried again if the source no longer has it. If the source has dropped a collection, a new
        collection may have its name now: the drop event of the old collection must not drop the new collection.
        """
        by_uuid = {each.uuid: each for each in collections}
        for record in self._registry:
            if not self._is_recorded(record, by_uuid.get(record.uuid)):
                self._catalog.drop(record.definition.namespace)
                self._partitions.forget(record.uuid)
                self._registry.remove(record)

    def _is_recorded(self, record: CollectionRecord, listed: CollectionSpec | None) -> bool:
        """Return whether `record` contains the name and definition of the source's collection `listed`.

        Return False if `listed` is None, because the source no longer has the collection.
        """
        if listed is None or record.source_name != listed.namespace:
            return False
        known, wanted = record.definition, destined(listed, self._context.target)
        return same_document(
            [known.options, known.indexes, known.shard_key, record.source_key],
            [wanted.options, wanted.indexes, wanted.shard_key, listed.shard_key or None],
        )

    def _record(self, collections: list[CollectionSpec]) -> None:
        """Save a record of each collection that has none.

        The record contains the definition that the collection gets at the commit, and the size of the data to copy.
        """
        new = [each for each in collections if self._registry.get(_uuid(each)) is None]
        amounts: dict[bytes, Size] = {}

        def measure(definition: CollectionSpec, stop: StopToken) -> None:
            amounts[_uuid(definition)] = size_on_source(self._context, definition, stop)

        for_each("measure", new, measure, self._context.load.readers, self._stop)
        self._registry.save_all(
            new_record(
                self._registry,
                destined(each, self._context.target),
                each.namespace,
                CopyStatus.WAITING,
                amounts[_uuid(each)],
                source_key=each.shard_key,
            )
            for each in new
        )

    def _create(self, definition: CollectionSpec, stop: StopToken) -> None:
        """Create a collection on the destination as a stand-in, that is, with relaxed options and indexes.

        If the start option `buildIndexes` defers the indexes until after the copy, create only the index that a shard
        key needs. The record of the collection must already be saved, so that a crash leaves no collection without a
        record.
        """
        record = self._registry.get(_uuid(definition))
        assert record is not None
        catalog = catalog_of(self._context, stop)
        if self._options.build_indexes.after_copy:
            catalog.create_bare(record.definition)
        else:
            catalog.create(record.current_definition)
        self._observe(Point.COLLECTION_CREATED, str(definition.namespace))


def _uuid(definition: CollectionSpec) -> bytes:
    assert definition.uuid is not None
    return definition.uuid
