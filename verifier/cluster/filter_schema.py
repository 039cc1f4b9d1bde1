"""The schema of the elements of `includeNamespaces` and `excludeNamespaces`."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from verifier.cluster.namespace import (
    LONGEST_DATABASE,
    NOT_IN_DATABASES,
    USER_COLLECTION_PATTERN,
    USER_DATABASE_PATTERN,
    is_user_database,
)
from verifier.runtime.schemas import Strict

_REGEX_OPTIONS = "imxs"

# A regular expression for the names of user databases that `valid_database` accepts. It also matches some longer names,
# because it counts characters, not bytes.
VALID_DATABASE_PATTERN = USER_DATABASE_PATTERN + r'[^/\\. "$\x00]{1,63}$'


def valid_database(name: str) -> None:
    """Raise ValidationError if a database name is too long for servers, or contains characters that they refuse."""
    if len(name.encode()) > LONGEST_DATABASE:
        raise ValidationError(f"Longer than {LONGEST_DATABASE} bytes.")
    if NOT_IN_DATABASES & {*name}:
        raise ValidationError(
            'The name of a database must not contain a space, a null character or any of the characters / \\ . " $'
        )


def _of_users(name: str) -> None:
    if not is_user_database(name):
        raise ValidationError("System and reserved databases are never synced or verified.")


def _regex_options(text: str) -> None:
    if not {*text} <= {*_REGEX_OPTIONS}:
        raise ValidationError(
            f"The options of the regular expression may contain only the letters {', '.join(_REGEX_OPTIONS)}."
        )


def _not_system(name: str) -> None:
    if name.startswith("system."):
        raise ValidationError("System collections are never synced or verified.")


class _PatternSchema(Strict):
    pattern = fields.String(
        required=True,
        validate=validate.Length(min=1),
        metadata={
            "description": "A regular expression for the server's $regex operator. It may match any part of a "
            "name; ^ and $ anchor it."
        },
    )
    options = fields.String(
        validate=_regex_options,
        metadata={
            "pattern": f"^[{_REGEX_OPTIONS}]*$",
            "description": "The options of the regular expression, as in the server's $options.",
        },
    )


# An element has exactly one of these fields. The schemas of the fields cannot express this.
ONE_DATABASE = {"oneOf": [{"required": ["database"]}, {"required": ["databaseRegex"]}]}


class NamespaceFilterSchema(Strict):
    """The schema of one element of a namespace filter.

    `load` returns the element as a dict, as `NamespaceFilter.include` and `NamespaceFilter.exclude` contain it.
    """

    database = fields.String(
        validate=[validate.Length(min=1), _of_users],
        metadata={"pattern": USER_DATABASE_PATTERN, "description": "The name of a database."},
    )
    databaseRegex = fields.Nested(
        _PatternSchema, metadata={"description": "A pattern for names of databases."}
    )
    collections = fields.List(
        fields.String(
            required=True,
            validate=[validate.Length(min=1), _not_system],
            metadata={"pattern": USER_COLLECTION_PATTERN},
        ),
        validate=validate.Length(min=1),
        metadata={
            "description": (
                "The names of collections and views. A filter without collections and collectionsRegex selects all "
                "collections and views of each matching database."
            )
        },
    )
    collectionsRegex = fields.Nested(
        _PatternSchema, metadata={"description": "A pattern for names of collections and views."}
    )

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _one_database(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, dict) and ("database" in original) == ("databaseRegex" in original):
            raise ValidationError(
                "A filter must have either database or databaseRegex, but not both.", "database"
            )
