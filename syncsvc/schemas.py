"""The shape of request bodies. Every violation is found at once, and unknown fields are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marshmallow import (
    RAISE,
    Schema,
    ValidationError,
    fields,
    post_load,
    validate,
    validates_schema,
)

from syncsvc.errors import INVALID_REQUEST
from syncsvc.options import BuildIndexes, StartOptions, WriteBlocking
from verifier.cluster.namespace import is_user_database
from verifier.runtime.errors import OperationError

_REGEX_OPTIONS = "imxs"
# What the library says of a field that is not in the schema.
_UNKNOWN = ["Unknown field."]


class _Strict(Schema):
    class Meta:
        unknown = RAISE


class _Boolean(fields.Field[bool]):
    """JSON true or false and nothing that merely looks like it."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError("Not true or false.")
        return value


class _WriteBlockingField(fields.Field[WriteBlocking]):
    _BOOLEANS = {True: WriteBlocking.SOURCE_AND_DESTINATION, False: WriteBlocking.NONE}

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> WriteBlocking:
        if isinstance(value, bool):
            return self._BOOLEANS[value]
        if not isinstance(value, str) or value not in {mode.value for mode in WriteBlocking}:
            names = ", ".join(mode.value for mode in WriteBlocking)
            raise ValidationError(f"Must be one of {names}, true or false.")
        return WriteBlocking(value)


class _ShardKeyElement(fields.Field[dict[str, Any]]):
    """One field of a shard key: {"name": 1}, {"name": -1} or {"name": "hashed"}."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) != 1:
            raise ValidationError("Must be a document of a single field.")
        (name, direction), *_ = value.items()
        allowed = not isinstance(direction, bool) and direction in (1, -1, "hashed")
        if not name or not allowed:
            raise ValidationError('Must map a field name to 1, -1 or "hashed".')
        return dict(value)


def _of_users(name: str) -> None:
    if not is_user_database(name):
        raise ValidationError("System and reserved databases are never synced.")


def _not_system(name: str) -> None:
    if name.startswith("system."):
        raise ValidationError("System collections are never synced.")


def _text() -> fields.String:
    return fields.String(required=True, validate=validate.Length(min=1))


class _PatternSchema(_Strict):
    pattern = _text()
    options = fields.String(
        validate=validate.ContainsOnly(_REGEX_OPTIONS, error=f"Only {_REGEX_OPTIONS} are allowed.")
    )


class _NamespaceFilterSchema(_Strict):
    database = fields.String(validate=[validate.Length(min=1), _of_users])
    databaseRegex = fields.Nested(_PatternSchema)
    collections = fields.List(
        fields.String(required=True, validate=[validate.Length(min=1), _not_system]),
        validate=validate.Length(min=1),
    )
    collectionsRegex = fields.Nested(_PatternSchema)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _one_database(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, dict) and ("database" in original) == ("databaseRegex" in original):
            raise ValidationError("Give either database or databaseRegex.", "database")


class _ShardKeySchema(_Strict):
    key = fields.List(_ShardKeyElement(), required=True, validate=validate.Length(min=1))


class _ShardingEntrySchema(_Strict):
    database = _text()
    collection = _text()
    shardCollection = fields.Nested(_ShardKeySchema, required=True)


class _ShardingSchema(_Strict):
    createSupportingIndexes = _Boolean(load_default=False)
    shardingEntries = fields.List(fields.Nested(_ShardingEntrySchema), required=True)


class _VerificationSchema(_Strict):
    enabled = _Boolean(load_default=True)


class StartSchema(_Strict):
    """The body of `POST /api/v1/start`; loads into StartOptions."""

    source = _text()
    destination = _text()
    buildIndexes = fields.Enum(
        BuildIndexes, by_value=True, load_default=BuildIndexes.BEFORE_DATA_COPY
    )
    enableUserWriteBlocking = _WriteBlockingField(load_default=WriteBlocking.DESTINATION_ONLY)
    reversible = _Boolean(load_default=False)
    verification = fields.Nested(_VerificationSchema, load_default=lambda: {"enabled": True})
    includeNamespaces = fields.List(fields.Nested(_NamespaceFilterSchema), load_default=list)
    excludeNamespaces = fields.List(fields.Nested(_NamespaceFilterSchema), load_default=list)
    sharding = fields.Nested(_ShardingSchema)

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> StartOptions:
        return StartOptions(
            source=data["source"],
            destination=data["destination"],
            build_indexes=data["buildIndexes"],
            write_blocking=data["enableUserWriteBlocking"],
            reversible=data["reversible"],
            verification=data["verification"]["enabled"],
            include_namespaces=tuple(data["includeNamespaces"]),
            exclude_namespaces=tuple(data["excludeNamespaces"]),
            sharding=data.get("sharding"),
        )


class EmptySchema(_Strict):
    """The body of commands that take no options."""


def load(schema: Schema, body: Mapping[str, Any]) -> Any:
    """What the body means by that schema. Raises OperationError InvalidRequest with every violation."""
    try:
        return schema.load(body)
    except ValidationError as error:
        violations = "; ".join(_flatten(error.messages, ""))
        raise OperationError(INVALID_REQUEST, f"{violations}.") from error


def _flatten(messages: Any, path: str) -> Iterator[str]:
    if isinstance(messages, dict):
        for name, below in messages.items():
            # The library's own name for the whole of a body; an unknown field may have that name, too.
            whole = name == "_schema" and below != _UNKNOWN
            shown = name or '""'
            step = f"[{name}]" if isinstance(name, int) else f".{shown}" if path else str(shown)
            yield from _flatten(below, path if whole else path + step)
    else:
        for message in messages if isinstance(messages, list) else [messages]:
            yield f"{path or 'the body'}: {str(message).rstrip('.')}"
