"""Handles the events of sources before 6.0, which contain names instead of UUIDs and do not report every DDL operation.

Of the DDL operations, only drops, renames and dropDatabase have events. Instances that share a sync refuse drops and
renames of synced collections (`SharedOldSource`). The rest is about an instance that runs a sync alone (`OldSource`).

After a drop or rename, the names in the event no longer mean the same collections, so the collections with these names
are dropped on the destination. `DefinitionWatch` detects the changes that have no event, and `Unreported` applies them;
`Unreported` also copies a collection that was renamed. Until that copy, the events with the new name are ignored.

The collections are listed after the start of the stream, so a name in an event may mean an earlier collection than the
listed one. Then the listed collection is dropped on the destination, too, and copied again.
"""

from __future__ import annotations

from typing import Protocol

from syncsvc.engine.definitions.source_lookup import find_named_on_source, find_on_source
from syncsvc.engine.events.ddl import DefinitionEvents
from syncsvc.engine.events.renames import Renames, is_temporary, renamed_out
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.options import RenamedOut
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


class NamedEvents(Protocol):
    """Handles the events of a source before 6.0: finds records of collections by name, and applies DDL events."""

    def record_of(self, namespace: Namespace) -> CollectionRecord | None:
        """Return the record of the collection with this name on the source; None if its data events must be ignored.

        Raises OperationError if the events can be neither applied nor ignored.
        """

    def apply(self, event: DefinitionEvent) -> None:
        """Apply a DDL event. Raises OperationError if that is impossible."""


class OldSource:
    """Handles the events of a source before 6.0 for an instance that runs a sync alone."""

    def __init__(
        self,
        context: RunContext,
        definitions: DefinitionEvents,
        renames: Renames,
        stop: StopToken,
    ) -> None:
        self._context = context
        self._definitions = definitions
        self._renames = renames
        self._stop = stop

    def record_of(self, namespace: Namespace) -> CollectionRecord | None:
        record = self._context.registry.at(namespace)
        # An incomplete copy was begun by a killed process, and the source has dropped or renamed the collection since.
        return record if record is not None and record.is_copied else None

    def apply(self, event: DefinitionEvent) -> None:
        if event.operation == "drop":
            self._forget(event.namespace)
        elif event.operation == "rename":
            self._rename(event)
        else:
            self._definitions.apply(event)

    def _rename(self, event: DefinitionEvent) -> None:
        assert event.renamed is not None
        self._refuse_leaving(event.namespace, event.renamed)
        # The new name may have belonged to a collection that the rename has dropped.
        for name in (event.namespace, event.renamed):
            self._forget(name)

    def _forget(self, name: Namespace) -> None:
        record = self._context.registry.at(name)
        if record is not None:
            self._renames.drop(record)

    def _refuse_leaving(self, before: Namespace, name: Namespace) -> None:
        """Raise OperationError RenamedOutOfFilter if the rename moves a synced collection out of the filter.

        Do nothing if the start options allow that, if the server created the collection as a temporary one, or if the
        source has dropped the collection or renamed it back into the filter.
        """
        record = self._context.registry.at(before)
        selects = self._context.selection.selects
        if record is None or selects(name) or is_temporary(record):
            return
        if self._context.run.record.options.renamed_out is RenamedOut.DROP:
            return
        found = find_on_source(self._context, before.database, record.uuid, self._stop)
        if found is not None and not selects(found.namespace):
            raise renamed_out(before, name)


class SharedOldSource:
    """Handles the events of a source before 6.0 for instances that share a sync: refuses DDL events of synced names.

    Only an event can tell all instances when to apply a change, and most changes have none. So a name must mean the
    same collection for as long as the sync runs.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop
        # Names that are not synced: the filter excludes them, they are reserved, or no collection has them any more.
        self._not_synced: set[Namespace] = set()

    def record_of(self, namespace: Namespace) -> CollectionRecord | None:
        """Return the record of the collection with this name; None if the collection is not synced.

        Raises OperationError UnsupportedChange if users created the collection during the sync, and the filter selects
        it. If the source has dropped such a collection again, return None.
        """
        record = self._context.registry.at(namespace)
        if record is None and namespace not in self._not_synced:
            if self._is_selected(namespace) and self._exists(namespace):
                self._refuse(f"{namespace} was created")
            self._not_synced.add(namespace)
        return record

    def apply(self, event: DefinitionEvent) -> None:
        """Raise OperationError UnsupportedChange if the event names a collection or view that the filter selects.

        But ignore dropDatabase, the drop of a view, and the drop of a collection that is not synced.
        """
        if event.operation == "dropDatabase":
            # The collections of the database have their own drop events, which come first. Views have none: the commit
            # reconciles them.
            return
        if event.operation == "drop" and self._context.registry.at(event.namespace) is None:
            # The drop undoes the creation of the collection during the sync. A new collection may get the same name.
            self._not_synced.discard(event.namespace)
            return
        for namespace in (event.namespace, event.renamed):
            if namespace is not None and self._is_selected(namespace):
                self._refuse(f"{event.operation} was run on {namespace}")

    def _is_selected(self, namespace: Namespace) -> bool:
        return is_user_namespace(namespace) and self._context.selection.selects(namespace)

    def _exists(self, namespace: Namespace) -> bool:
        return find_named_on_source(self._context, namespace, self._stop) is not None

    def _refuse(self, change: str) -> None:
        version = self._context.source_facts.dotted_version
        raise OperationError(
            UNSUPPORTED_CHANGE,
            f"{change} on the source. Several instances that share a sync cannot apply DDL operations of a source of "
            f"version {version}, because its change stream does not report all of them. A single instance can apply "
            "them.",
        )


def named_events(
    context: RunContext, definitions: DefinitionEvents, renames: Renames, stop: StopToken
) -> NamedEvents:
    """Return the handler of the events of a source before 6.0, for one instance or for several that share the sync."""
    if context.run.record.instances:
        return SharedOldSource(context, stop)
    return OldSource(context, definitions, renames, stop)
