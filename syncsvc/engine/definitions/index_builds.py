"""Keeps the indexes of a collection off the destination for as long as they refuse what the replay must pass through.

A document may come to the destination as it was before an index was made, or after it was dropped, and an index may be
built over documents of several times: it can refuse what it never met on the source (arrays in parallel, odd languages,
broken geometries). Then all indexes of the collection are withheld. They are built when everything is applied, and the
documents are those of the source; what is refused then fails the sync.
"""

from __future__ import annotations

import logging

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.registry import CollectionRecord
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Channel, StopToken, TaskGroup

_log = logging.getLogger(__name__)

# How often the withheld indexes of a collection are tried to be built, and the pause in between, in seconds.
_BUILDS = 5
_PAUSE = 1.0


def withhold(context: RunContext, uuid: bytes, reason: str, stop: StopToken) -> bool:
    """Take the indexes of a collection away, so that what they refused can be tried again; False if there are none."""
    with context.registry.redefining:
        record = context.registry.get(uuid)
        if record is None or not record.definition.indexes:
            return False
        if not record.withheld:
            record = context.registry.change(record, withheld=True)
            _log.warning(
                "The indexes of a collection are withheld.",
                extra={"namespace": str(record.namespace), "reason": reason},
            )
            _warn(context)
        Catalog(context, stop).reconcile_indexes(record.present)
        return True


def build_indexes(context: RunContext, record: CollectionRecord, stop: StopToken) -> None:
    """Give a collection the indexes of its definition; withhold them if documents are in the way."""
    try:
        Catalog(context, stop).reconcile_indexes(record.present)
    except OperationError as error:
        if not withhold(context, record.uuid, error.description, stop):
            raise


def restore_indexes(context: RunContext, stop: StopToken) -> None:
    """Build all that were withheld. Raises OperationError DefinitionNotApplicable for one that cannot be."""
    catalog = Catalog(context, stop)
    for record in context.registry:
        if record.withheld:
            _restore(catalog, record, stop)
            context.registry.change(record, withheld=False)
    _warn(context)


def _restore(catalog: Catalog, record: CollectionRecord, stop: StopToken) -> None:
    for attempt in range(1, _BUILDS + 1):
        try:
            catalog.reconcile_indexes(record.definition)
            return
        except OperationError:
            if attempt == _BUILDS:
                raise
        stop.sleep(_PAUSE)


def _warn(context: RunContext) -> None:
    names = sorted(str(each.namespace) for each in context.registry if each.withheld)
    if not names:
        context.progress.end_warning(WarningKind.INDEXES_WITHHELD)
        return
    context.progress.warn(
        WarningKind.INDEXES_WITHHELD,
        f"The indexes of {', '.join(names)} are withheld from the destination for now, because they refuse "
        "documents of an earlier or later state. They are built after the commit was requested, which delays the "
        "verification.",
    )


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
