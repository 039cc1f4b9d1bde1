"""Withholds the indexes of a collection for a time if one of them refuses a document on the destination.

A document may reach the destination in a state from before an index was created or after it was dropped, and an index
may be built over documents that were read at different times. So an index can refuse a document that it never had to
index on the source (parallel arrays, unknown languages, invalid geometries). Then all indexes of the collection, except
one that supports its shard key, are withheld: dropped, and built again when all events from the time of the copy are
applied. If several instances share the sync, or an index still refuses a document then or refuses one later, the
indexes are built during the commit, when the documents equal those of the source. If an index refuses a document even
then, the sync fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from syncsvc.figures.progress import WarningKind
from syncsvc.rules import deferral
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.specification import CollectionSpec
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken, for_each

_log = logging.getLogger(__name__)

# How often a commit tries to build the withheld indexes of a collection, and the pause between attempts, in seconds.
_BUILDS = 5
_PAUSE = 1.0


def withhold(
    context: RunContext,
    uuid: bytes,
    reason: str,
    stop: StopToken,
    changed: CollectionSpec | None = None,
) -> bool:
    """Withhold the indexes of the collection `uuid`: drop them for a time, so that refused writes can be retried.

    Save that the indexes are withheld, and warn; at the same time, save `changed` as the new definition if it is given.
    If the indexes are already withheld, `changed` is not saved. `reason` is the error of the refused write or index
    build, for the log. Return True if the indexes are withheld. Return False, without any change, if `changed` (or the
    saved definition, if `changed` is None) has no indexes, or if the collection is no longer synced.
    """
    with context.registry.redefining:
        record = context.registry.get(uuid)
        if record is not None and record.withheld and context.run.record.instances:
            # The coordinator may have built the indexes since this instance withheld them.
            context.registry.reload(stop)
            record = context.registry.get(uuid)
        if record is None or not (changed or record.definition).indexes:
            return False
        if not record.withheld:
            definition = changed or record.definition
            record = context.registry.change(record, definition=definition, withheld=True)
            _log.warning(
                "The indexes of a collection are withheld from the destination, because it refused a document or an "
                "index. They are built later, at the latest during the commit. If `reason` is a limit or a fault of "
                "the destination, remove it before the commit.",
                extra={"namespace": str(record.definition.namespace), "reason": reason},
            )
            warn_of_withheld(context)
        catalog_of(context, stop).reconcile_indexes(record.current_definition)
        return True


def build_indexes(
    context: RunContext,
    record: CollectionRecord,
    stop: StopToken,
    changed: CollectionSpec | None = None,
) -> None:
    """Build the indexes of a collection unless they are withheld; if one of them is refused, `withhold` all of them.

    The indexes are those of `changed`, a new definition not saved yet, or of the saved definition if it is None.
    Raises OperationError DefinitionNotApplicable if an index is refused and nothing can be withheld, because that
    definition has no indexes, or because the collection is no longer synced.
    """
    wanted = record if changed is None else replace(record, definition=changed)
    try:
        catalog_of(context, stop).reconcile_indexes(wanted.current_definition)
    except OperationError as error:
        if error.kind is not DEFINITION_NOT_APPLICABLE:
            raise
        if not withhold(context, record.uuid, error.description, stop, changed):
            raise


def build_deferred(context: RunContext, stop: StopToken) -> None:
    """Build the indexes that the destination lacks because an earlier version of syncsvc began the sync.

    That version would have built them at the commit (see `deferral.earlier_names`), but the verification expects them
    now. Raises OperationError DefinitionNotApplicable if an index cannot be built and nothing can be withheld.
    """
    for record in context.registry:
        if deferral.earlier_names(record.definition):
            build_indexes(context, record, stop)


def try_withheld(context: RunContext, stop: StopToken) -> None:
    """Build all withheld indexes; if the destination still refuses one, leave those of its collection withheld.

    No events may be applied meanwhile.
    """
    catalog = catalog_of(context, stop)

    def build(record: CollectionRecord) -> bool:
        try:
            catalog.reconcile_indexes(record.definition)
        except OperationError as error:
            if error.kind is not DEFINITION_NOT_APPLICABLE:
                raise
            catalog.reconcile_indexes(record.current_definition)
            return False
        return True

    _build_withheld(context, build)


def restore_indexes(context: RunContext, stop: StopToken) -> None:
    """Build all withheld indexes, save that they are no longer withheld, and end the warning about them.

    Raises OperationError DefinitionNotApplicable if an index cannot be built.
    """
    catalog = catalog_of(context, stop)

    def build(record: CollectionRecord) -> bool:
        for attempt in range(1, _BUILDS + 1):
            try:
                catalog.reconcile_indexes(record.definition)
                break
            except OperationError as error:
                if error.kind is not DEFINITION_NOT_APPLICABLE or attempt == _BUILDS:
                    raise
            stop.sleep(_PAUSE)
        return True

    _build_withheld(context, build)


def _build_withheld(context: RunContext, build: Callable[[CollectionRecord], bool]) -> None:
    """Build all withheld indexes with `build`, which returns False for a collection whose indexes stay withheld.

    Save for the other collections that their indexes are no longer withheld, and update or end the warning.
    """
    for record in context.registry:
        if record.withheld and build(record):
            context.registry.change(record, withheld=False)
    warn_of_withheld(context)


def warn_of_withheld(context: RunContext) -> None:
    """Warn of the collections whose indexes are withheld; end the warning if there are none."""
    withheld = (each.definition for each in context.registry if each.withheld)
    names = sorted(str(each.namespace) for each in withheld)
    if not names:
        context.progress.end_warning(WarningKind.INDEXES_WITHHELD)
        return
    context.progress.warn(
        WarningKind.INDEXES_WITHHELD,
        f"The indexes of {', '.join(names)} are withheld from the destination for now, because a document or an index "
        "was refused. This is normal if the documents and the index definitions were read at different times. These "
        "indexes are built when all changes from the time of the copy are applied or, if that is not possible, during "
        "the commit, which then takes longer. The log names the reason for each collection. If it is a limit or a "
        "fault of the destination, remove this before the commit; otherwise the commit fails. For any other reason, do "
        "nothing.",
    )


def build_all(context: RunContext, stop: StopToken) -> None:
    """Build the indexes of all collections in several threads; return when all are built or withheld."""

    def build(record: CollectionRecord, stop: StopToken) -> None:
        context.progress.collections.indexing(record.uuid)
        build_indexes(context, record, stop)
        context.progress.collections.indexed(record.uuid)
        context.observe(Point.INDEXES_BUILT, str(record.namespace))

    # Build the indexes of large collections first, so that no large collection is left for the end.
    records = sorted(context.registry, key=lambda record: record.copied, reverse=True)
    for_each("index", records, build, context.load.readers, stop)
