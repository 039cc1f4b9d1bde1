"""Sources before 6.0: their events tell names, not UUIDs, and not every change of a definition.

So a name means one collection for as long as the sync runs, and any change of a definition that shows fails the sync by
name: a drop or rename by its event, a new collection by the first event of a document in it. Other changes do not show:
the definitions are compared once more when a commit is asked for.
"""

from __future__ import annotations

from syncsvc.engine.parts import Parts
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.indexing import destined
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.inventory import list_collections
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import Kind
from verifier.compare.definitions import compare_definitions
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


class OldSource:
    """What the events of such a source are about."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._not_synced: set[Namespace] = set()

    def record_of(self, namespace: Namespace) -> CollectionRecord | None:
        """The collection of that name; None for one that is not synced. Raises OperationError UnsupportedChange."""
        record = self._parts.registry.at(namespace)
        if record is None and namespace not in self._not_synced:
            self._refuse("create", namespace)
            self._not_synced.add(namespace)
        return record

    def check_definitions(self, stop: StopToken) -> None:
        """Raise OperationError UnsupportedChange for what the source defines otherwise than when it was listed."""
        listed = read(
            lambda: list(list_collections(self._parts.source, self._parts.selection)),
            stop,
        )
        options = self._parts.run.record.options
        for each in listed:
            if each.kind is Kind.VIEW:
                continue
            record = self._parts.registry.at(each.namespace)
            if record is None:
                self._refuse("create", each.namespace)
            elif compare_definitions([record.definition], [destined(each, options)]):
                self._refuse("collMod, createIndexes or dropIndexes", each.namespace)

    def refuse(self, event: DefinitionEvent) -> None:
        """Raise OperationError UnsupportedChange, if the event is of something that is synced."""
        for namespace in (event.namespace, event.renamed):
            if namespace is not None:
                self._refuse(event.operation, namespace)

    def _refuse(self, operation: str, namespace: Namespace) -> None:
        if is_user_namespace(namespace) and self._parts.selection.selects(namespace):
            version = ".".join(map(str, self._parts.source_facts.version))
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"{operation} on {namespace}: a source of version {version} does not tell enough of it.",
            )
