"""The schemas of request bodies and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate

from syncsvc.options import CLUSTERS, BuildIndexes, StartOptions, WriteBlocking
from verifier.cluster.filter_schema import ONE_DATABASE, NamespaceFilterSchema
from verifier.cluster.namespace import USER_COLLECTION_PATTERN, USER_DATABASE_PATTERN
from verifier.runtime.schemas import Boolean, Strict


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
    """One field of a shard key: {"name": 1} or {"name": "hashed"}.

    Also accepts a direction of -1, which is refused later, as InvalidShardingEntry, with the reason.
    """

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) != 1:
            raise ValidationError("Must be a document of a single field.")
        (name, direction), *_ = value.items()
        allowed = not isinstance(direction, bool) and direction in (1, -1, "hashed")
        if not name or not allowed:
            raise ValidationError('Must map a field name to 1 or "hashed".')
        return dict(value)


_SHARD_KEY_ELEMENT = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    # No part of a path is empty or begins with $.
    "propertyNames": {"pattern": r"^[^.$][^.]*(\.[^.$][^.]*)*$"},
    "additionalProperties": {"enum": [1, "hashed"]},
}
_SHARD_KEY = {
    "contains": {"type": "object", "additionalProperties": {"const": "hashed"}},
    "minContains": 0,
    "maxContains": 1,
}


def _text(**metadata: Any) -> fields.String:
    return fields.String(required=True, validate=validate.Length(min=1), metadata=metadata)


def _filters() -> fields.List[Any]:
    each = fields.Nested(NamespaceFilterSchema, metadata=ONE_DATABASE)
    return fields.List(each, load_default=list)


class _ShardKeySchema(Strict):
    key = fields.List(
        _ShardKeyElement(metadata=_SHARD_KEY_ELEMENT),
        required=True,
        validate=validate.Length(min=1),
        metadata=_SHARD_KEY,
    )


class _ShardingEntrySchema(Strict):
    database = _text(pattern=USER_DATABASE_PATTERN)
    collection = _text(pattern=USER_COLLECTION_PATTERN)
    shardCollection = fields.Nested(_ShardKeySchema, required=True)


class _ShardingSchema(Strict):
    createSupportingIndexes = Boolean(load_default=False)
    shardingEntries = fields.List(fields.Nested(_ShardingEntrySchema), required=True)


class _VerificationSchema(Strict):
    enabled = Boolean(load_default=True)


class _NaturalOrderSchema(Strict):
    """One element of `copyInNaturalOrder`: a database, or "." for all, and optionally some of its collections."""

    database = _text()
    collections = fields.List(_text(), validate=validate.Length(min=1))


class StartSchema(Strict):
    """The body of `POST /api/v1/start`; loads into StartOptions."""

    source = _text(enum=list(CLUSTERS))
    destination = _text(enum=list(CLUSTERS))
    buildIndexes = fields.Enum(
        BuildIndexes, by_value=True, load_default=BuildIndexes.BEFORE_DATA_COPY
    )
    enableUserWriteBlocking = _WriteBlockingField(
        load_default=WriteBlocking.DESTINATION_ONLY,
        metadata={
            "enum": [*(mode.value for mode in WriteBlocking), True, False],
            "default": WriteBlocking.DESTINATION_ONLY.value,
        },
    )
    reversible = Boolean(load_default=False)
    verification = fields.Nested(_VerificationSchema, load_default=lambda: {"enabled": True})
    includeNamespaces = _filters()
    excludeNamespaces = _filters()
    sharding = fields.Nested(_ShardingSchema)
    preExistingDestinationData = Boolean(load_default=False)
    copyInNaturalOrder = fields.List(fields.Nested(_NaturalOrderSchema), load_default=list)
    detectRandomId = Boolean(load_default=True)
    skipDiskSpaceCheck = Boolean(load_default=False)

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
            pre_existing_destination_data=data["preExistingDestinationData"],
            copy_in_natural_order=tuple(data["copyInNaturalOrder"]),
            detect_random_id=data["detectRandomId"],
            skip_disk_space_check=data["skipDiskSpaceCheck"],
        )


class NamespacesSchema(Strict):
    """The parameters of `GET /api/v1/namespaces`."""

    database = fields.String(validate=validate.Length(min=1))
    after = fields.String(validate=validate.Length(min=1))
    limit = fields.Integer(load_default=1_000, validate=validate.Range(min=1, max=10_000))
