"""Schemas of the requests for mismatches, and of the lines that answer them."""

from __future__ import annotations

from marshmallow import fields, validate

from verifier.compare.mismatch import Aspect, Difference
from verifier.runtime.openapi import always
from verifier.runtime.schemas import Strict

# The largest limit that servers accept.
_MOST = (1 << 31) - 1


class DefinitionMismatchesSchema(Strict):
    """The parameters of a request for mismatches of definitions."""

    limit = fields.Integer(validate=validate.Range(min=1, max=_MOST))
    after = fields.String(validate=validate.Length(min=1))


class DocumentMismatchesSchema(DefinitionMismatchesSchema):
    """The parameters of a request for mismatches of documents."""

    minDurationSecs = fields.Float(load_default=0.0, validate=validate.Range(min=0))


class _Mismatch(Strict):
    type = always(
        fields.Enum, "Which cluster lacks it, or that both differ.", Difference, by_value=True
    )
    namespace = always(fields.String, "Its name on the source.")
    generation = always(fields.Integer, "The generation that found it.")
    durationSecs = always(fields.Float, "For how long it has differed without being changed.")
    place = always(fields.String, "What to page on after.")


class _FieldDifference(Strict):
    path = always(fields.String, "The path of the field; empty for the document itself.")
    detail = always(fields.String, "How the two sides differ there.")


class DocumentMismatchLine(_Mismatch):
    _id = always(fields.Raw, "Its _id, in relaxed Extended JSON.")
    idType = always(fields.String, "The type of its _id.")
    fields = always(fields.List, "Where both differ.", fields.Nested(_FieldDifference))


class DefinitionMismatchLine(_Mismatch):
    aspect = always(fields.Enum, "Of what of the collection or view it is.", Aspect, by_value=True)
    component = always(fields.String, "The option or index.")
    detail = always(fields.String, "How the two sides differ.")
