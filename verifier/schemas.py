"""The schemas of request bodies."""

from __future__ import annotations

from typing import Any

import bson
from bson.errors import BSONError
from marshmallow import ValidationError, fields

from verifier.cluster.specification import Document
from verifier.runtime.schemas import Strict


class _FilterField(fields.Field[Document]):
    """A field for a filter: any document that BSON can represent. The servers decide later whether it is valid."""

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

    filter = _FilterField(
        metadata={
            "type": "object",
            "description": "A filter in MongoDB Extended JSON; only documents that match it are compared.",
        }
    )
