"""Creates, changes and drops collections, views and indexes on the destination. Every action may be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.errors import OperationFailure

from syncsvc.engine import standin
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from syncsvc.writer import ClusterWriter
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import OperationError


class Catalog:
    """The definitions on the destination, which are stand-ins until commit."""

    def __init__(self, client: Client, writer: ClusterWriter) -> None:
        self._client = client
        self._writer = writer

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
        command = {"create": definition.namespace.collection, **definition.options}
        self._run(definition.namespace, command, failures.NAMESPACE_EXISTS)

    def drop(self, namespace: Namespace) -> None:
        self._run(namespace, {"drop": namespace.collection}, failures.NAMESPACE_NOT_FOUND)

    def drop_view(self, namespace: Namespace) -> None:
        if self._kind_at(namespace) is Kind.VIEW:
            self.drop(namespace)

    def drop_views(self, database: str) -> None:
        for each in self._client[database].list_collections(filter={"type": Kind.VIEW.value}):
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
        """Make prepared indexes unique, and build those that had to wait for it."""
        for command in standin.conversions(definition):
            self._run(definition.namespace, command)

    def _kind_at(self, namespace: Namespace) -> Kind | None:
        listed = self._client[namespace.database].list_collections(
            filter={"name": namespace.collection}
        )
        return next((Kind(each["type"]) for each in listed), None)

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
