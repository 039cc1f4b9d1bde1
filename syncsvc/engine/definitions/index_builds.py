"""Withholds the indexes of a collection from the destination while they refuse documents that the replay must write.

A document may reach the destination in a state from before an index was created or after it was dropped, and an index
may be built over documents of different times. So the index can refuse a document that it never met on the source
(parallel arrays, unknown languages, invalid geometries). Then all indexes of the collection are withheld. They are
built when all events are applied and the documents equal those of the source; if one is refused then, the sync fails.
"""

from __future__ import annotations

import logging

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.registry import CollectionRecord
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken, for_each

_log = logging.getLogger(__name__)

# How many attempts are made to build the withheld indexes of a collection, and the pause in between, in seconds.
_BUILDS = 5
_PAUSE = 1.0


def withhold(context: RunContext, uuid: bytes, reason: str, stop: StopToken) -> bool:
    """Drop the indexes of a collection until the commit, so that refused writes can be retried; save this, and warn.

    `reason` is the error of the refused write or index, for the log. Return False, and do nothing, if the definition
    has no indexes or the collection is no longer synced.
    """
    with context.registry.redefining:
        record = context.registry.get(uuid)
        if record is None or not record.definition.indexes:
            return False
        if not record.withheld:
            record = context.registry.change(record, withheld=True)
            _log.warning(
                "The indexes of a collection are withheld from the destination, because one of them refuses a "
                "document. They are built after the commit is requested.",
                extra={"namespace": str(record.namespace), "reason": reason},
            )
            _warn(context)
        Catalog(context, stop).reconcile_indexes(record.present)
        return True


def build_indexes(context: RunContext, record: CollectionRecord, stop: StopToken) -> None:
    """Build the indexes of a collection's definition; withhold all of them if one cannot be built over its documents.

    Raises OperationError DefinitionNotApplicable if there is no index to withhold.
    """
    try:
        Catalog(context, stop).reconcile_indexes(record.present)
    except OperationError as error:
        if not withhold(context, record.uuid, error.description, stop):
            raise


def restore_indexes(context: RunContext, stop: StopToken) -> None:
    """Build all withheld indexes, save that they are no longer withheld, and end the warning.

    Raises OperationError DefinitionNotApplicable if one cannot be built.
    """
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
        f"The indexes of {', '.join(names)} are withheld from the destination for now. The index definitions and the "
        "documents were read at different times, so an index refuses a document. You need not do anything: these "
        "indexes are built after the commit is requested, which makes the commit take longer.",
    )


def build_all(context: RunContext, stop: StopToken) -> None:
    """Build the indexes of all collections in several threads; return when all are built or withheld."""

    def build(record: CollectionRecord, stop: StopToken) -> None:
        context.progress.collections.indexing(record.uuid)
        build_indexes(context, record, stop)
        context.progress.collections.indexed(record.uuid)
        context.observe(Point.INDEXES_BUILT, str(record.namespace))

    # Large collections first, so that no large one is left for the end.
    records = sorted(context.registry, key=lambda record: record.copied, reverse=True)
    for_each("index", records, build, context.load.readers, stop)
