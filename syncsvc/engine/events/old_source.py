"""Handles the events of sources before 6.0, which contain names instead of UUIDs and do not report every DDL operation.

A name must mean the same collection for as long as the sync runs. Therefore these events fail the sync: drop, rename,
and the first event of a document in a new collection. `DefinitionWatch` detects the changes that have no event.
"""

from __future__ import annotations

from syncsvc.engine.definitions.source_lookup import find_named_on_source
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


class OldSource:
    """Finds the collections that the events of a source before 6.0 concern, by name."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop
        # Excluded by the filter, or dropped again on the source.
        self._not_synced: set[Namespace] = set()

    def record_of(self, namespace: Namespace) -> CollectionRecord | None:
        """Return the record of the collection with this name; None if the collection is not synced.

        Raises OperationError UnsupportedChange if users created the collection during the sync, and the filter selects
        it. If the source has dropped such a collection again, return None.
        """
        record = self._context.registry.at(namespace)
        if record is None and namespace not in self._not_synced:
            if self._is_selected(namespace) and self._exists(namespace):
                self._refuse("create", namespace)
            self._not_synced.add(namespace)
        return record

    def refuse(self, event: DefinitionEvent) -> None:
        """Raise OperationError UnsupportedChange if the event changes anything that is synced."""
        if event.operation == "drop" and self._context.registry.at(event.namespace) is None:
            # The drop undoes the creation of the collection during the sync. A new collection may get the same name.
            self._not_synced.discard(event.namespace)
            return
        for namespace in (event.namespace, event.renamed):
            if namespace is not None and self._is_selected(namespace):
                self._refuse(event.operation, namespace)

    def _is_selected(self, namespace: Namespace) -> bool:
        return is_user_namespace(namespace) and self._context.selection.selects(namespace)

    def _exists(self, namespace: Namespace) -> bool:
        return find_named_on_source(self._context, namespace, self._stop) is not None

    def _refuse(self, operation: str, namespace: Namespace) -> None:
        version = self._context.source_facts.dotted_version
        raise OperationError(
            UNSUPPORTED_CHANGE,
            f"The source reported {operation} on {namespace}. It cannot be applied, because a source of version "
            f"{version} does not report its details.",
        )
