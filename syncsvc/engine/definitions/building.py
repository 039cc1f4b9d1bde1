"""Builds the indexes of all copied collections, for the values of `buildIndexes` that say so. Safe to begin again."""

from __future__ import annotations

from syncsvc.engine.definitions.withholding import build_indexes
from syncsvc.engine.observe import Point
from syncsvc.engine.run_context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.runtime.tasks import Channel, StopToken, TaskGroup


def build_all(context: RunContext, stop: StopToken) -> None:
    """Return when all are built, or withheld."""
    with TaskGroup("index", stop) as group:
        waiting: Channel[CollectionRecord] = Channel(1 << 40, group.stop)
        # Large collections first, so that none of them is left alone at the end.
        for record in sorted(context.registry, key=lambda record: record.copied, reverse=True):
            waiting.put(record, 1)
        waiting.close()
        for number in range(context.load.readers):
            group.spawn(f"build-{number}", _build, context, waiting, group.stop)


def _build(context: RunContext, waiting: Channel[CollectionRecord], stop: StopToken) -> None:
    for record in waiting:
        context.progress.collections.indexing(record.uuid)
        build_indexes(context, record, stop)
        context.progress.collections.indexed(record.uuid)
        context.observe(Point.INDEXES_BUILT, str(record.namespace))
