"""Applies the repairs of a round (all differences repaired together), in the thread that passes events to the lanes.

Documents are read again through the lanes, so no other write of the same document can overtake the repair. Only the
coordinator repairs definitions: it applies all DDL events in this thread, so no DDL event runs at the same time.
The definitions of collections are restored from the registry, which holds them as they are after all events read so
far; views are restored from the source.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.created import created_uuid, save_created
from syncsvc.engine.definitions.index_builds import build_indexes
from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.definitions.standin import stand_in
from syncsvc.engine.definitions.views import reconcile_views
from syncsvc.engine.events.dispatch import Dispatcher
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.frontier import Frontier
from syncsvc.engine.run.points import Point
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from syncsvc.rules.repairing import option_change
from syncsvc.saved.created_collections import mismatch_names, replaced
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.namespace import Namespace, some_of
from verifier.cluster.reading import read
from verifier.cluster.times import Position
from verifier.compare.mismatch import Aspect, DefinitionMismatch
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# Differences for which the collection is created, unless it exists.
_OF_CREATION = {Aspect.EXISTENCE, Aspect.KIND, Aspect.SHARD_KEY}


class RepairWork:
    """Applies, in one instance, the rounds of repairs that the run record requests."""

    def __init__(
        self,
        context: RunContext,
        dispatcher: Dispatcher,
        frontier: Frontier[Position],
        stop: StopToken,
    ) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._frontier = frontier
        self._stop = stop
        self._catalog = catalog_of(context, stop)

    def run_pending(self, source_time: Timestamp) -> None:
        """Apply the newest round of repairs and record it as applied; a no-op if this instance has already applied it.

        All events read so far must have been passed to the lanes, and none may be after `source_time`, a cluster time
        of the source. The documents are read at that time or later, by the lanes. A definition that the destination
        refuses is logged, and left to the next round. Raises OperationError if a view cannot be created, or if a
        foreign collection or view has a needed name.
        """
        record = self._context.run.record
        if record.repaired >= record.repair:
            return
        self._frontier.wait_drained(self._stop)
        # Check again which collections users have replaced: there may be more of them since the list of repairs was
        # saved, perhaps before a restart.
        client, registry = self._context.destination_client, self._context.registry
        if record.instances:
            # The coordinator may have created collections, and any instance may have withheld indexes.
            registry.reload(self._stop)
        found = read(lambda: replaced(client, registry), self._stop)
        foreign = mismatch_names(found, self._context.names)
        if record.coordinates:
            self._restore_definitions(record.repair, foreign)
        self._reread_documents(record.repair, foreign, source_time)
        self._context.observe(Point.REPAIR_APPLIED, str(record.repair))
        self._context.run.update(repaired=record.repair)

    def _reread_documents(
        self, number: int, foreign: set[Namespace], source_time: Timestamp
    ) -> None:
        registry = self._context.registry
        records = {
            each.source_storage: each for each in registry if each.source_storage not in foreign
        }
        skipped: set[Namespace] = set()
        for mismatch in self._context.repairs.documents(number):
            record = records.get(mismatch.namespace)
            if record is None:
                skipped.add(mismatch.namespace)
            else:
                event = DataEvent(DataKind.REREAD, record.uuid, mismatch.key, b"")
                self._dispatcher.add(record, event, source_time)
        self._dispatcher.end(None, source_time)
        self._frontier.wait_drained(self._stop)
        if skipped and self._context.run.record.coordinates:
            self._report_skipped(number, skipped)

    def _report_skipped(self, number: int, namespaces: set[Namespace]) -> None:
        """Remove the documents of these collections from the saved repairs of the round `number`, and log a warning."""
        # A renamed collection is compared again as a whole.
        self._context.repairs.remove_documents(number, namespaces)
        _log.warning(
            "Documents were not repaired, because their collections were renamed or dropped, or because users replaced "
            "the collections on the destination. The verification reports the documents that still differ, under the "
            "current names of their collections. If it reports any, send POST /api/v1/repair (during a commit, only "
            "after the commit has failed).",
            extra={"namespaces": some_of(namespaces)},
        )

    def _restore_definitions(self, number: int, foreign: set[Namespace]) -> None:
        by_name = attrgetter("namespace")
        found = [
            each
            for each in self._context.repairs.definitions(number)
            if each.namespace not in foreign
        ]
        others = False
        for namespace, group in groupby(sorted(found, key=by_name), by_name):
            record = self._context.registry.at(self._context.names.to_destination(namespace))
            if record is None:
                others = True
                continue
            differences = list(group)
            try:
                self._restore(record, differences)
            except OperationError as error:
                if error.kind is not DEFINITION_NOT_APPLICABLE:
                    raise
                # The next comparison finds the differences again.
                self._context.repairs.remove(number, differences)
                _log.warning(
                    "A definition could not be repaired; the reason is in the field `error`. The verification "
                    "reports the difference again: remove the cause, and send POST /api/v1/repair (during a "
                    "commit, only after the commit has failed).",
                    extra={"error": error.description},
                )
        if others:
            reconcile_views(self._context, self._stop)

    def _restore(self, record: CollectionRecord, found: Sequence[DefinitionMismatch]) -> None:
        aspects = {each.aspect for each in found}
        if aspects & _OF_CREATION:
            self._create(record)
        names = [each.component for each in found if each.aspect is Aspect.OPTION]
        self._catalog.modify(
            record.definition.namespace, option_change(stand_in(record.definition), names)
        )
        if aspects & {*_OF_CREATION, Aspect.INDEX}:
            build_indexes(self._context, record, self._stop)

    def _create(self, record: CollectionRecord) -> None:
        """Create the collection of `record` unless it exists, and save the UUID of the new collection."""
        context = self._context
        if created_uuid(context, record.namespace, self._stop) is None:
            # The saved UUID belongs to a collection that was dropped.
            record = context.registry.change(record, destination_uuid=None)
        self._catalog.create_bare(record.current_definition)
        save_created(context, [record], self._stop)
