"""Validates request bodies with marshmallow. Reports all violations at once, including the names of unknown fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from verifier.runtime.errors import ErrorKind, OperationError

INVALID_REQUEST = ErrorKind(
    "InvalidRequest",
    400,
    "A field or parameter of the request is missing, is unknown, or has a wrong type or value.",
    "Correct the named fields; all violations are listed.",
)

# The messages of marshmallow for a field that is not in the schema.
_UNKNOWN = ["Unknown field."]


class Strict(Schema):
    class Meta:
        unknown = RAISE


class Boolean(fields.Field[bool]):
    """A field that accepts only JSON true and false, not values such as 1 or "true"."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError("Must be true or false.")
        return value


class EmptySchema(Strict):
    """The schema of a request body, or of query parameters, that must have no fields."""


class TablePart(Strict):
    """The query parameters that select a part of a sorted table: the sort direction, and the range of rows."""

    descending = fields.Boolean(
        load_default=False,
        metadata={"description": "Whether the rows of the table are sorted in descending order."},
    )
    offset = fields.Integer(
        load_default=0,
        validate=validate.Range(min=0, max=1_000_000_000),
        metadata={
            "description": (
                "The number of rows of the table to skip before the first returned row."
            )
        },
    )
    limit = fields.Integer(
        load_default=100,
        validate=validate.Range(min=1, max=1_000),
        metadata={"description": "The maximum number of returned rows of the table."},
    )


def load(schema: Schema, body: Mapping[str, Any]) -> Any:
    """Return the body, validated and loaded by the schema. Raise OperationError InvalidRequest with all violations."""
    try:
        return schema.load(body)
    except ValidationError as error:
        violations = "; ".join(_flatten(error.messages, ""))
        raise OperationError(INVALID_REQUEST, f"{violations}.") from error


def _flatten(messages: Any, path: str) -> Iterator[str]:
    if isinstance(messages, dict):
        for name, below in messages.items():
            # The key of marshmallow for errors of the body as a whole; an unknown field may have that name, too.
            whole = name == "_schema" and below != _UNKNOWN
            shown = name or '""'
            step = f"[{name}]" if isinstance(name, int) else f".{shown}" if path else str(shown)
            yield from _flatten(below, path if whole else path + step)
    else:
        for message in messages if isinstance(messages, list) else [messages]:
            yield f"{path or 'the body'}: {str(message).rstrip('.')}"
