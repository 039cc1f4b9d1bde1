"""The schemas of the lists of collections: the query parameters of the table on the page, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import fields, post_load, validate

from syncsvc.reports.namespaces import NamespacePhase, SortKey, TableRequest
from verifier.runtime.openapi import SuccessAnswer, always, nullable, sometimes
from verifier.runtime.schemas import Strict, TablePart


class NamespacesTableSchema(TablePart):
    """The query parameters of `GET /api/v1/overview/namespaces`; loads into TableRequest."""

    search = fields.String(
        validate=validate.Length(max=1_000),
        metadata={
            "description": "Show only collections whose name on the source contains this text, regardless of case."
        },
    )
    phase = fields.Enum(
        NamespacePhase,
        by_value=True,
        metadata={"description": "Show only collections in this phase."},
    )
    different = fields.Boolean(
        load_default=False,
        metadata={"description": "Show only collections with documents that differ."},
    )
    sort = fields.Enum(
        SortKey,
        by_value=True,
        load_default=SortKey.NAME,
        metadata={
            "description": "The order of the collections: by name, number of documents, bytes, share left to copy, "
            "number of change events, or number of mismatches."
        },
    )

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> TableRequest:
        return TableRequest(**data)


class _NamespaceVerification(Strict):
    comparedDocuments = always(
        fields.Integer,
        "The number of documents of the collection that the first pass of the verification has compared.",
    )
    estimatedTotalDocuments = nullable(
        fields.Integer,
        "The estimated number of documents of the collection that the first pass of the verification compares; null "
        "if unknown.",
    )
    mismatches = always(fields.Integer, "The number of documents of the collection that differ.")


class _Namespace(Strict):
    """The progress of one collection."""

    namespace = always(fields.String, "The name of the collection on the source.")
    destinationNamespace = sometimes(
        fields.String,
        "The name of the collection on the destination, if namespaceRemap changes the name.",
    )
    phase = always(
        fields.Enum,
        "The phase of the collection in the copy and the index builds; `withheld` if its indexes are not built yet, "
        "because the destination refused a document or one of them.",
        NamespacePhase,
        by_value=True,
    )
    copiedDocuments = always(fields.Integer, "The number of documents copied.")
    estimatedTotalDocuments = always(fields.Integer, "The estimated number of documents to copy.")
    copiedBytes = always(fields.Integer, "The number of bytes copied.")
    estimatedTotalBytes = always(fields.Integer, "The estimated number of bytes to copy.")
    documentsPerSecond = nullable(
        fields.Float,
        "The number of documents that this process copies per second, on average since it began or resumed the copy of "
        "the collection; null while this process does not copy the collection.",
    )
    bytesPerSecond = nullable(
        fields.Float,
        "The number of bytes that this process copies per second, on average since it began or resumed the copy of the "
        "collection; null while this process does not copy the collection.",
    )
    eventsApplied = always(
        fields.Integer,
        "The number of change events of the collection, not counting DDL events, that this process has applied.",
    )
    indexesBuilt = nullable(
        fields.Integer,
        "The number of the collection's indexes that are built on the destination, not counting the index on _id; null "
        "while the indexes are being created before the copy, and on other instances than the coordinator, during the "
        "builds after the copy.",
    )
    totalIndexes = always(
        fields.Integer, "The number of indexes of the collection, not counting the index on _id."
    )
    verification = nullable(
        fields.Nested,
        "The progress of the verification of the collection; null if the verification is disabled, if this process has "
        "no figures of it (as before it begins, and in an instance that is not the coordinator), or if its first pass "
        "does not include the collection.",
        _NamespaceVerification,
    )


class NamespacesAnswer(SuccessAnswer):
    namespaces = always(fields.List, "The collections, sorted by name.", fields.Nested(_Namespace))
    next = nullable(
        fields.String,
        "The value of the parameter `after` that requests the next page; null on the last page.",
    )


class NamespacesTableAnswer(SuccessAnswer):
    namespaces = always(fields.List, "The requested collections.", fields.Nested(_Namespace))
    total = always(
        fields.Integer,
        "The number of all collections that the request selects, including those that `limit` and `offset` leave out.",
    )
