"""The schemas of queries in requests, and of the elements of `documentFilter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
from bson.errors import BSONError
from marshmallow import ValidationError, fields, validate

from verifier.cluster import extended
from verifier.cluster.document_filters import DocumentFilters, refusals
from verifier.cluster.filter_schema import VALID_DATABASE_PATTERN, valid_database
from verifier.cluster.namespace import (
    USER_COLLECTION_PATTERN,
    Namespace,
    is_user_namespace,
)
from verifier.cluster.specification import Document
from verifier.runtime.schemas import Strict


class QueryField(fields.Field[Document]):
    """A request field with a query in Extended JSON: any document that BSON can represent.

    The server later decides whether the query is valid. Values that were already converted from Extended JSON are
    accepted, too.
    """

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Document:
        try:
            query = extended.converted(value)
        except (ValueError, RecursionError) as error:
            raise ValidationError(f"The value cannot be read as Extended JSON: {error}") from error
        if not isinstance(query, dict):
            raise ValidationError("Must be a document.")
        try:
            bson.encode(query)
        except (BSONError, ValueError, OverflowError) as error:
            raise ValidationError(f"The value cannot be written as BSON: {error}") from error
        return query


def _steady(query: Document) -> None:
    found = [f"{each}." for each in refusals(query)]
    if found:
        raise ValidationError(found)


class _DocumentFilterSchema(Strict):
    database = fields.String(
        required=True,
        validate=[validate.Length(min=1), valid_database],
        metadata={
            "pattern": VALID_DATABASE_PATTERN,
            "description": "The database of the collection on the source.",
        },
    )
    collection = fields.String(
        required=True,
        validate=validate.Length(min=1),
        metadata={
            "pattern": USER_COLLECTION_PATTERN,
            "description": "The name of the collection on the source.",
        },
    )
    filter = QueryField(
        required=True,
        validate=_steady,
        metadata={
            "type": "object",
            "description": "A query in MongoDB Extended JSON, which the source evaluates. Operators whose result "
            "depends on more than the document are refused, such as $where, $text, $near and $rand.",
        },
    )


def _refuse_unfit(entries: Sequence[Mapping[str, Any]]) -> None:
    names = [Namespace(each["database"], each["collection"]) for each in entries]
    for name in names:
        if not is_user_namespace(name):
            raise ValidationError(
                f"{name} is a system or reserved namespace, which is never synced or verified: remove this filter."
            )
        if names.count(name) > 1:
            raise ValidationError(
                f"The filters must name each collection only once, but {name} is repeated."
            )


def document_filters(meaning: str) -> fields.List[Any]:
    """Return the schema field `documentFilter` of a request; `filters_given` converts its value.

    `meaning` is the description of the field.
    """
    return fields.List(
        fields.Nested(_DocumentFilterSchema),
        load_default=list,
        validate=_refuse_unfit,
        metadata={"description": meaning},
    )


def filters_given(entries: Sequence[Mapping[str, Any]]) -> DocumentFilters:
    """Convert the loaded value of the field `documentFilter` to DocumentFilters.

    Empty queries are left out: they select all documents.
    """
    return DocumentFilters(
        {
            Namespace(each["database"], each["collection"]): bson.encode(each["filter"])
            for each in entries
            if each["filter"]
        }
    )
