"""Builds the indexes of all copied collections, for `buildIndexes` afterDataCopy. Safe to begin again."""

from __future__ import annotations

from syncsvc.engine.catalog import Catalog
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from syncsvc.store import CollectionRecord
from verifier.runtime.tasks import Channel, StopToken, TaskGroup


def build_all(parts: Parts, stop: StopToken) -> None:
    """Return when all are built. Raises OperationError DefinitionNotApplicable for one that cannot be."""
    with TaskGroup("index", stop) as group:
        catalog = Catalog(parts, group.stop)
        waiting: Channel[CollectionRecord] = Channel(1 << 40, group.stop)
        # Large collections first, so that none of them is left alone at the end.
        for record in sorted(parts.registry, key=lambda record: record.copied, reverse=True):
            waiting.put(record, 1)
        waiting.close()
        for number in range(parts.load.readers):
            group.spawn(f"build-{number}", _build, parts, waiting, catalog)


def _build(parts: Parts, waiting: Channel[CollectionRecord], catalog: Catalog) -> None:
    for record in waiting:
        catalog.reconcile_indexes(record.definition)
        parts.observe(Point.INDEXES_BUILT, str(record.namespace))
