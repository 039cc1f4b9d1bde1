"""The schema of the request field `namespaceRemap`, which gives namespaces another name on the destination."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from verifier.cluster.filter_schema import VALID_DATABASE_PATTERN, valid_database
from verifier.cluster.namespace import (
    LONGEST_NAME,
    USER_COLLECTION_PATTERN,
    is_user_database,
)
from verifier.runtime.schemas import Strict

_NOT_IN_COLLECTIONS = frozenset("$\0")


def _database(name: str) -> None:
    if not is_user_database(name):
        raise ValidationError(
            "System and reserved databases cannot be renamed, and their names cannot be used as new names."
        )
    valid_database(name)


def _collection(name: str) -> None:
    if name.startswith("system."):
        raise ValidationError(
            "System collections cannot be renamed, and their names cannot be used as new names."
        )
    if name.startswith("."):
        raise ValidationError("The name of a collection must not begin with a dot.")
    if len(name.encode()) > LONGEST_NAME:
        raise ValidationError(f"Longer than {LONGEST_NAME} bytes.")
    if _NOT_IN_COLLECTIONS & {*name}:
        raise ValidationError("The name of a collection must not contain $ or a null character.")


class _NameSchema(Strict):
    database = fields.String(
        required=True,
        validate=validate.And(validate.Length(min=1), _database),
        metadata={
            "pattern": VALID_DATABASE_PATTERN,
            "description": "The name of a database.",
        },
    )
    collection = fields.String(
        validate=validate.And(validate.Length(min=1), _collection),
        metadata={
            "pattern": USER_COLLECTION_PATTERN + r"(?!\.)[^$\x00]{1,255}$",
            "description": (
                "The name of a collection or view; if this field is omitted, the whole database is renamed."
            ),
        },
    )


class RemapSchema(Strict):
    """The schema of one element of `namespaceRemap`.

    `load` returns the element as a dict; `namespace_map.entries_of` converts these dicts to pairs of namespaces.
    """

    class Meta(Strict.Meta):
        # "from" is a keyword of Python.
        include = {
            "from": fields.Nested(
                _NameSchema,
                required=True,
                metadata={"description": "The collection, view or database on the source."},
            )
        }

    to = fields.Nested(
        _NameSchema,
        required=True,
        metadata={
            "description": "The new name of the collection, view or database on the destination."
        },
    )

    @validates_schema
    def _alike(self, data: Any, **kwargs: Any) -> None:
        here, there = data["from"], data["to"]
        if ("collection" in here) != ("collection" in there):
            text = "`to` must name a collection if `from` names a collection, and a whole database otherwise."
            raise ValidationError(text, "to")
        if here == there:
            raise ValidationError("Must differ from `from`.", "to")


# Either both names have a collection, or neither has. The schemas of the fields cannot express this.
_SINGLE, _WHOLE = {"required": ["collection"]}, {"not": {"required": ["collection"]}}
_ALIKE = {
    "oneOf": [{"properties": {"from": each, "to": each}} for each in (_SINGLE, _WHOLE)],
}


def remap_field(meaning: str) -> fields.List[Any]:
    """Return the schema field `namespaceRemap` of a request. `meaning` is the description of the field."""
    each = fields.Nested(RemapSchema, metadata=_ALIKE)
    return fields.List(each, load_default=list, metadata={"description": meaning})
