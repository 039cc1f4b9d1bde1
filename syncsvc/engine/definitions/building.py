"""Builds the indexes of all copied collections, for the values of `buildIndexes` that say so. Safe to begin again."""

from __future__ import annotations

from syncsvc.engine.definitions.withholding import build_indexes
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from syncsvc.saved.registry import CollectionRecord
from verifier.runtime.tasks import Channel, StopToken, TaskGroup


def build_all(parts: Parts, stop: StopToken) -> None:
    """Return when all are built, or withheld."""
    with TaskGroup("index", stop) as group:
        waiting: Channel[CollectionRecord] = Channel(1 << 40, group.stop)
        # Large collections first, so that none of them is left alone at the end.
        for record in sorted(parts.registry, key=lambda record: record.copied, reverse=True):
            waiting.put(record, 1)
        waiting.close()
        for number in range(parts.load.readers):
            group.spawn(f"build-{number}", _build, parts, waiting, group.stop)


def _build(parts: Parts, waiting: Channel[CollectionRecord], stop: StopToken) -> None:
    for record in waiting:
        parts.progress.collections.indexing(record.uuid)
        build_indexes(parts, record, stop)
        parts.progress.collections.indexed(record.uuid)
        parts.observe(Point.INDEXES_BUILT, str(record.namespace))
