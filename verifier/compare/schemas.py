"""Schemas of the requests for mismatches, and of the lines of the answers."""

from __future__ import annotations

from marshmallow import fields, validate

from verifier.compare.mismatch import Aspect, Difference
from verifier.runtime.openapi import always, sometimes
from verifier.runtime.schemas import Strict

# MongoDB defines the effect of the limit of a query only up to this value.
_MOST = (1 << 31) - 1


class DefinitionMismatchesSchema(Strict):
    """The parameters of a request for mismatches of definitions."""

    limit = fields.Integer(
        validate=validate.Range(min=1, max=_MOST),
        metadata={
            "description": "The maximum number of lines in the answer; all lines if omitted."
        },
    )
    after = fields.String(
        validate=validate.Length(min=1),
        metadata={
            "description": (
                "List only the lines after the line with this page token, which is the field `place` of that line; "
                "if omitted, the list begins with the first line."
            )
        },
    )
    namespace = fields.String(
        validate=validate.Length(min=1),
        metadata={
            "description": "List only the differences of this namespace of the source, "
            "and of its buckets if it is a time-series collection."
        },
    )


class DocumentMismatchesSchema(DefinitionMismatchesSchema):
    """The parameters of a request for mismatches of documents."""

    minDurationSecs = fields.Float(
        load_default=0.0,
        validate=validate.Range(min=0),
        metadata={
            "description": "Leave out documents that have differed for less than this many seconds since they last "
            "changed."
        },
    )


class _Mismatch(Strict):
    type = always(
        fields.Enum,
        "The kind of difference: missing on the destination, extra on the destination, or different content.",
        Difference,
        by_value=True,
    )
    namespace = always(
        fields.String,
        "The name of the collection or view on the source; for documents of a time-series collection, the name of its "
        "buckets.",
    )
    destinationNamespace = sometimes(
        fields.String,
        "The name of the collection or view on the destination, if it differs from the name on the source.",
    )
    generation = always(
        fields.Integer, "The newest generation of the check that found the difference."
    )
    durationSecs = always(
        fields.Float,
        "The time from the first to the last comparison that found the difference, in seconds; for a document, this "
        "time starts again from 0 when the document changes.",
    )
    place = always(
        fields.String, "The page token of this line: send it as `after` to get the next lines."
    )


class _FieldDifference(Strict):
    path = always(fields.String, "The path of the field; empty for the document as a whole.")
    detail = always(fields.String, "The difference between the values on the two clusters.")


class DocumentMismatchLine(_Mismatch):
    _id = always(
        fields.Raw,
        "The _id of the document, in relaxed Extended JSON; a string with its type and bytes if it cannot be decoded.",
    )
    idType = always(fields.String, "The BSON type of the _id.")
    fields = always(
        fields.List,
        "The fields that differ, at most 20 of them; empty if only one cluster has the document.",
        fields.Nested(_FieldDifference),
    )


class DefinitionMismatchLine(_Mismatch):
    aspect = always(
        fields.Enum,
        "The aspect that differs: exist (existence), type, spec (an option), index, shard key, or count (the number of "
        "documents).",
        Aspect,
        by_value=True,
    )
    component = always(fields.String, "The name of the option or index; empty for other aspects.")
    detail = always(
        fields.String,
        "The difference in the definition or in the number of documents; may be empty.",
    )
