"""Generates the OpenAPI 3.1 description of an HTTP API from a table of its operations.

The schemas that validate request bodies and parameters are also their descriptions, and the error table of the process
describes the errors. So nothing needs to be described twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin, resolver
from flask import Blueprint
from marshmallow import INCLUDE, Schema, fields, validate

from verifier.runtime.access import INVALID_TOKEN, ROLE_NOT_ALLOWED
from verifier.runtime.channel import BODY_TOO_LARGE, MALFORMED_BODY
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind
from verifier.runtime.schemas import INVALID_REQUEST, Boolean, Strict
from verifier.runtime.sites import HOST_NOT_ALLOWED, ORIGIN_NOT_ALLOWED

PATH = "/api/v1/openapi.json"

_KEYWORDS = ("contains", "minContains", "maxContains", "propertyNames", "uniqueItems")

_BEARER = "token"

JSON, LINES, TEXT = "application/json", "application/x-ndjson", "text/plain"
HTML = "text/html"


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    `method` is in lower case. `body` and `parameters` are the schemas that load the request. `answer` is the schema of
    an answer with status 200, or None if the answer is text. If `content` is LINES, each line has the schema `answer`
    or `other`; after an error, the last line has the schema ErrorAnswer. With `page`, the answer can be HTML, too.
    `errors` are the errors of this operation, in addition to the general ones, which `all_errors` adds. A `public`
    operation needs no token.
    """

    method: str
    path: str
    meaning: str
    answer: Schema | None
    body: Schema | None = None
    parameters: Schema | None = None
    other: Schema | None = None
    content: str = JSON
    errors: tuple[ErrorKind, ...] = ()
    public: bool = False
    page: bool = False

    @property
    def all_errors(self) -> list[ErrorKind]:
        """Return all distinct errors of the operation, sorted by status."""
        read = (MALFORMED_BODY, INVALID_REQUEST, BODY_TOO_LARGE) if self.body is not None else ()
        asked = (INVALID_REQUEST,) if self.parameters is not None else ()
        sites = (HOST_NOT_ALLOWED, *((ORIGIN_NOT_ALLOWED,) if self.method != "get" else ()))
        access = () if self.public else (INVALID_TOKEN,)
        role = () if self.method == "get" else (ROLE_NOT_ALLOWED,)
        kinds = dict.fromkeys([*read, *asked, *sites, *access, *role, *self.errors, INTERNAL_ERROR])
        return sorted(kinds, key=lambda kind: kind.status)

    def described(self) -> dict[str, Any]:
        """Return the OpenAPI operation object. Its schemas are marshmallow objects, which apispec converts."""
        whole: dict[str, Any] = {
            "operationId": _identifier(self.method, self.path),
            "summary": self.meaning,
            "responses": {"200": self._success(), **_failures(self.all_errors)},
        }
        if self.public:
            whole["security"] = []
        if self.parameters is not None:
            whole["parameters"] = [{"in": "query", "schema": self.parameters}]
        if self.body is not None:
            whole["requestBody"] = {
                # An absent body counts as {}.
                "required": any(field.required for field in self.body.fields.values()),
                "content": {JSON: {"schema": self.body}},
            }
        return whole

    def _success(self) -> dict[str, Any]:
        if self.answer is None:
            return {
                "description": "Text.",
                "content": {self.content: {"schema": {"type": "string"}}},
            }
        if self.content == LINES:
            # Describe the lines as the elements of an array, as later versions of OpenAPI do.
            kinds = [each for each in (self.answer, self.other, ErrorAnswer()) if each]
            lines = {"type": "array", "items": {"anyOf": kinds}}
            text = "One JSON object per line. After an error, the last line has the field `error`."
            return {"description": text, "content": {LINES: {"schema": lines}}}
        page = {HTML: {"schema": {"type": "string"}}} if self.page else {}
        return {
            "description": "The request succeeded.",
            "content": {self.content: {"schema": self.answer}, **page},
        }


class SuccessAnswer(Strict):
    """The answer to a command that returns no data, and the base class of most other successful answers."""

    success = Boolean(
        required=True, metadata={"enum": [True], "description": "True: the request succeeded."}
    )


class ErrorAnswer(Strict):
    """The answer to a request that fails."""

    success = Boolean(
        required=True, metadata={"enum": [False], "description": "False: the request failed."}
    )
    error = fields.String(
        required=True,
        validate=validate.Length(min=1),
        metadata={"description": "The name of the error."},
    )
    errorDescription = fields.String(
        required=True,
        validate=validate.Length(min=1),
        metadata={"description": "The description of the error, and its remedy."},
    )


class _DescriptionAnswer(Schema):
    """The answer to `GET /api/v1/openapi.json`: the OpenAPI document of the API."""

    class Meta:
        unknown = INCLUDE

    openapi = fields.String(
        required=True, metadata={"description": "The version of OpenAPI that the document follows."}
    )


def always(kind: type[fields.Field[Any]], meaning: str, *of: Any, **options: Any) -> Any:
    """Return a field that is always present, and never null.

    `kind` is the class of the field, and `meaning` its description. `of` and `options` are passed to the class.
    """
    metadata = {"description": meaning, **options.pop("metadata", {})}
    return kind(*of, required=True, metadata=metadata, **options)


def nullable(kind: type[fields.Field[Any]], meaning: str, *of: Any, **options: Any) -> Any:
    """Return a field that is always present, and null if its value is unknown or does not apply.

    The parameters have the same meaning as in `always`.
    """
    return always(kind, meaning, *of, allow_none=True, **options)


def sometimes(kind: type[fields.Field[Any]], meaning: str, *of: Any, **options: Any) -> Any:
    """Return a field that is absent if it does not apply.

    The parameters have the same meaning as in `always`, but `options` must not contain `metadata`. The field is never
    null, unless the option `allow_none` is given.
    """
    return kind(*of, metadata={"description": meaning}, **options)


def described(
    title: str, version: str, server: str, meaning: str, operations: Iterable[Operation]
) -> dict[str, Any]:
    """Return the OpenAPI document of a process: `operations`, and the operation that returns the document.

    `server` is the URL of the API, and `meaning` the description of the API.
    """
    plugin = MarshmallowPlugin(schema_name_resolver=_name)
    spec = APISpec(
        title=title,
        version=version,
        openapi_version="3.1.0",
        info={"description": meaning},
        servers=[{"url": server}],
        # Without a token file, requests need no token.
        security=[{_BEARER: []}, {}],
        plugins=[plugin],
    )
    spec.components.security_scheme(_BEARER, {"type": "http", "scheme": "bearer"})
    assert plugin.converter is not None
    plugin.converter.field_mapping[Boolean] = ("boolean", None)
    plugin.converter.attribute_functions.append(_more_keywords)
    own = Operation("get", PATH, "Returns this OpenAPI document.", _DescriptionAnswer())
    for each in (*operations, own):
        spec.path(each.path, operations={each.method: each.described()})
    document: dict[str, Any] = spec.to_dict()
    return document


def _more_keywords(field: fields.Field[Any], **options: Any) -> dict[str, Any]:
    """Return the JSON Schema keywords in the field's metadata that apispec would omit."""
    return {name: field.metadata[name] for name in _KEYWORDS if name in field.metadata}


def endpoint(description: Callable[[], dict[str, Any]]) -> Blueprint:
    """Return the blueprint with the endpoint GET /api/v1/openapi.json, which returns the result of `description()`.

    Requests call `description`, which should cache its result. It is not called when the process starts.
    """
    blueprint = Blueprint("openapi", __name__)

    @blueprint.get(PATH)
    def openapi() -> dict[str, Any]:
        return description()

    return blueprint


def _failures(kinds: Sequence[ErrorKind]) -> dict[str, Any]:
    """Return the OpenAPI responses for these errors, by HTTP status. `kinds` must be sorted by status."""
    return {
        str(status): _failure([*of_status])
        for status, of_status in groupby(kinds, key=lambda kind: kind.status)
    }


def _failure(kinds: Sequence[ErrorKind]) -> dict[str, Any]:
    names = {"properties": {"error": {"enum": [kind.name for kind in kinds]}}}
    return {
        "description": "\n".join(f"- `{kind.name}`: {kind.meaning}" for kind in kinds),
        "content": {JSON: {"schema": {"allOf": [ErrorAnswer(), names]}}},
    }


def _identifier(method: str, path: str) -> str:
    return "_".join([method, *re.findall("[A-Za-z]+", path.removeprefix("/api/v1"))])


def _name(schema: type[Schema]) -> str:
    """Return the component name of a schema: its class name without the suffix `Schema` and leading underscores."""
    return str(resolver(schema)).lstrip("_")
