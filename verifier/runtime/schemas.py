"""Validates request bodies and query parameters with marshmallow. Reports violations of several fields at once."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from verifier.runtime.errors import ErrorKind, OperationError

INVALID_REQUEST = ErrorKind(
    "InvalidRequest",
    400,
    "A field or parameter of the request is missing, is unknown, or has a wrong type or value.",
    "Correct the named fields or parameters.",
)

# The messages of marshmallow for a field that the schema does not contain.
_UNKNOWN = ["Unknown field."]
_SURROGATE = re.compile("[\ud800-\udfff]")
# The path of a value in a body: the path of the object or list that contains it, and its name or index there; None for
# the body itself.
_Path = tuple[Any, str | int] | None


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
    """A schema without fields, for requests that accept no body fields or query parameters."""


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
    """Return the body, validated and loaded by the schema. Raise OperationError InvalidRequest with the violations.

    If a string in the body contains an unpaired surrogate, such as "\\ud800", only the first such string is named.
    Schemas need not expect these strings, which cannot be encoded.
    """
    for path, text in _texts(body):
        if _SURROGATE.search(text):
            shown = _shown(path) or "the body"
            raise _invalid([f"{shown}: Must not contain an unpaired surrogate"])
    try:
        return schema.load(body)
    except ValidationError as error:
        raise _invalid(_flatten(error.messages, "")) from error


def _invalid(violations: Iterable[str]) -> OperationError:
    return OperationError(INVALID_REQUEST, f"{'; '.join(violations)}.")


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[_Path, str]]:
    """Yield each string in the body with its path. Field names are yielded with the path of the object that has them.

    Time and memory are linear in the size of the body, even if the body is deeply nested or has long names.
    """
    left: deque[tuple[_Path, Any]] = deque([(None, body)])
    while left:
        path, value = left.popleft()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, Mapping):
            yield from ((path, str(name)) for name in value)
            left.extend(((path, name), each) for name, each in value.items())
        elif isinstance(value, list):
            left.extend(((path, index), each) for index, each in enumerate(value))


def _shown(path: _Path) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return reduce(_below, reversed(steps), "")


def _flatten(messages: Any, path: str) -> Iterator[str]:
    if isinstance(messages, dict):
        for name, below in messages.items():
            # The key of marshmallow for errors of the body as a whole; an unknown field may have that name, too.
            whole = name == "_schema" and below != _UNKNOWN
            yield from _flatten(below, path if whole else _below(path, name))
    else:
        for message in messages if isinstance(messages, list) else [messages]:
            yield f"{path or 'the body'}: {str(message).rstrip('.')}"


def _below(path: str, name: str | int) -> str:
    """Return `path` extended by the name of a field or by the index of a list element."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    shown = name or '""'
    return f"{path}.{shown}" if path else shown
