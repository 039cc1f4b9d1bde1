"""Lists the source's collections and views, and creates them on the destination as stand-ins."""

from __future__ import annotations

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.naming import new_record
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.indexing import definition_violations, destined
from syncsvc.saved.registry import CopyStatus
from verifier.cluster.inventory import list_collections, measure
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.errors import raise_all
from verifier.runtime.tasks import StopToken


class SourceListing:
    """Lists the source. Must run after the start of the change stream is saved: later changes then arrive as events."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
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
        raise_all(definition_violations(self._options, self._facts, listed))
        collections = [each for each in listed if each.kind is not Kind.VIEW]
        self._forget_all_but(collections)
        for definition in collections:
            self._stop.check()
            self._create(definition)
        # Views come last, when their collections exist.
        for definition in listed:
            if definition.kind is Kind.VIEW:
                self._catalog.create_view(definition)

    def _forget_all_but(self, collections: list[CollectionSpec]) -> None:
        """Drop and forget the collections that an earlier, interrupted listing created and the source no longer has.

        Another collection may have the name now; the drop event of the old collection must not drop it.
        """
        uuids = {each.uuid for each in collections}
        for record in self._registry:
            if record.uuid not in uuids:
                self._catalog.drop(record.definition.namespace)
                self._partitions.forget(record.uuid)
                self._registry.remove(record)

    def _create(self, definition: CollectionSpec) -> None:
        assert definition.uuid is not None
        record = self._registry.get(definition.uuid)
        if record is None:
            amount = read(
                lambda: measure(self._source_client, definition.storage),
                self._stop,
            )
            # The record holds the true definition, and is saved before the stand-in is created.
            wanted = destined(definition, self._options)
            record = new_record(self._registry, wanted, CopyStatus.WAITING, amount)
            self._registry.save(record)
        if self._options.build_indexes.after_copy:
            self._catalog.create_bare(record.definition)
        else:
            self._catalog.create(record.present)
        self._observe(Point.COLLECTION_CREATED, str(definition.namespace))
