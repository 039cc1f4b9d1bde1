"""Creates, changes and drops collections, views and indexes on the destination. Every action may be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.errors import OperationFailure

from syncsvc.engine import standin
from syncsvc.engine.parts import Parts
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from verifier.cluster import failures
from verifier.cluster.inventory import list_raw
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

# The view is there; or it makes a circle, is too deep, or has another collation, with views that are yet to change.
_PASSING_VIEW_CODES = (failures.NAMESPACE_EXISTS, 5, 165, 167)


class Catalog:
    """The definitions on the destination, which are stand-ins until commit."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._client = parts.client
        self._writer = parts.writer
        self._stop = stop

    def create(self, definition: CollectionSpec) -> None:
        """Make sure that a collection and its indexes are there as stand-ins."""
        namespace = definition.namespace
        if self._kind_at(namespace) is Kind.VIEW:
            # A view that had the name before or will have it after: whichever it is, its own events bring it back.
            self.drop(namespace)
        plain = standin.stand_in(definition)
        command = {"create": namespace.collection, **plain.options}
        self._run(namespace, command, failures.NAMESPACE_EXISTS)
        self.create_indexes(definition, plain.indexes.values())

    def create_view(self, definition: CollectionSpec) -> None:
        """Create a view, where nothing has its name and its definition fits the views that are there by now."""
        command = {"create": definition.namespace.collection, **definition.options}
        self._run(definition.namespace, command, *_PASSING_VIEW_CODES)

    def drop(self, namespace: Namespace) -> None:
        self._run(namespace, {"drop": namespace.collection}, failures.NAMESPACE_NOT_FOUND)

    def drop_view(self, namespace: Namespace) -> None:
        if self._kind_at(namespace) is Kind.VIEW:
            self.drop(namespace)

    def drop_views(self, database: str) -> None:
        for each in self._list(database, {"type": Kind.VIEW.value}):
            self.drop(Namespace(database, each["name"]))

    def create_indexes(self, definition: CollectionSpec, indexes: Iterable[Document]) -> None:
        """Build indexes, each given as a stand-in; one of the same name and another definition gives way."""
        for index in indexes:
            command = {
                "createIndexes": definition.namespace.collection,
                "indexes": [standin.creatable(index, definition.collated)],
            }
            reply = self._run(
                definition.namespace,
                command,
                failures.INDEX_OPTIONS_CONFLICT,
                failures.INDEX_KEY_SPECS_CONFLICT,
            )
            if reply is None:
                self.drop_index(definition.namespace, index["name"])
                self._run(definition.namespace, command)

    def drop_index(self, namespace: Namespace, name: str) -> None:
        self._run(
            namespace,
            {"dropIndexes": namespace.collection, "index": name},
            failures.INDEX_NOT_FOUND,
            failures.NAMESPACE_NOT_FOUND,
        )

    def prepare(self, definition: CollectionSpec) -> None:
        """Put back what can be put back before users write."""
        for command in standin.preparations(definition):
            self._run(definition.namespace, command)

    def convert(self, definition: CollectionSpec) -> None:
        """Make prepared indexes unique, and build those that had to wait for it.

        Users write already: what they have dropped meanwhile needs nothing more.
        """
        for command in standin.conversions(definition):
            self._run(
                definition.namespace,
                command,
                failures.NAMESPACE_NOT_FOUND,
                failures.INDEX_NOT_FOUND,
            )

    def _kind_at(self, namespace: Namespace) -> Kind | None:
        listed = self._list(namespace.database, {"name": namespace.collection})
        return next((Kind(each["type"]) for each in listed), None)

    def _list(self, database: str, query: Document) -> list[Document]:
        return retry(
            lambda: list_raw(self._client, database, query), failures.is_transient, self._stop
        )

    def _run(
        self, namespace: Namespace, command: dict[str, Any], *expected: int
    ) -> dict[str, Any] | None:
        """The reply; None when the server answered with one of the expected codes, which say that it was done."""
        try:
            return self._writer.run(namespace.database, command)
        except OperationFailure as error:
            if error.code in expected:
                return None
            if failures.named_kind(error) is not None:
                raise
            action = next(iter(command))
            raise OperationError(
                DEFINITION_NOT_APPLICABLE,
                f"{action} on {namespace} was refused: {failures.text_of(error)}.",
            ) from error
