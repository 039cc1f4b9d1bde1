"""The shape of request bodies and parameters."""

from __future__ import annotations

from typing import Any

import bson
from bson.errors import BSONError
from marshmallow import ValidationError, fields, validate

from verifier.cluster.specification import Document
from verifier.runtime.schemas import Strict

# The servers' limit of a limit.
_MOST = (1 << 31) - 1


class _FilterField(fields.Field[Document]):
    """A document as BSON can have it; whether it is a filter, the servers know."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Document:
        if not isinstance(value, dict):
            raise ValidationError("Must be a document.")
        try:
            bson.encode(value)
        except (BSONError, ValueError, OverflowError) as error:
            raise ValidationError(f"Cannot be written as BSON: {error}") from error
        return value


class CheckSchema(Strict):
    """The body of `POST /api/v1/check`."""

    filter = _FilterField(metadata={"type": "object"})


class DefinitionMismatchesSchema(Strict):
    """The parameters of `GET /api/v1/nsMismatches`."""

    limit = fields.Integer(validate=validate.Range(min=1, max=_MOST))
    after = fields.String(validate=validate.Length(min=1))


class DocumentMismatchesSchema(DefinitionMismatchesSchema):
    """The parameters of `GET /api/v1/docMismatches`."""

    minDurationSecs = fields.Float(load_default=0.0, validate=validate.Range(min=0))
