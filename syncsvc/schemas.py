"""The schemas of request bodies and query parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from syncsvc.limits import zone_of
from syncsvc.options import (
    CLUSTERS,
    BuildIndexes,
    EventSpool,
    OnConflict,
    Repair,
    StartOptions,
    UsersAndRoles,
    WriteBlocking,
)
from verifier.cluster.filter_schema import ONE_DATABASE, NamespaceFilterSchema
from verifier.cluster.namespace import USER_COLLECTION_PATTERN, USER_DATABASE_PATTERN
from verifier.compare.schemas import DocumentMismatchesSchema
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
            raise ValidationError("Must be a document with a single field.")
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


def _text(meaning: str, **metadata: Any) -> fields.String:
    metadata["description"] = meaning
    return fields.String(required=True, validate=validate.Length(min=1), metadata=metadata)


def _flag(meaning: str, default: bool) -> Boolean:
    return Boolean(load_default=default, metadata={"description": meaning})


def _filters(meaning: str) -> fields.List[Any]:
    each = fields.Nested(NamespaceFilterSchema, metadata=ONE_DATABASE)
    return fields.List(each, load_default=list, metadata={"description": meaning})


def _refuse_repeated(names: list[str]) -> None:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise ValidationError(f"Must contain each ID only once, but repeats {', '.join(repeated)}.")


class _ShardKeySchema(Strict):
    key = fields.List(
        _ShardKeyElement(metadata=_SHARD_KEY_ELEMENT),
        required=True,
        validate=validate.Length(min=1),
        metadata={**_SHARD_KEY, "description": "The fields of the shard key, in order."},
    )


class _ShardingEntrySchema(Strict):
    database = _text("The database of the collection.", pattern=USER_DATABASE_PATTERN)
    collection = _text("The collection to shard.", pattern=USER_COLLECTION_PATTERN)
    shardCollection = fields.Nested(
        _ShardKeySchema,
        required=True,
        metadata={"description": "How to shard the collection on the destination."},
    )


class _ShardingSchema(Strict):
    createSupportingIndexes = _flag(
        "Whether to create the indexes that shard keys need and the source lacks.", False
    )
    shardingEntries = fields.List(
        fields.Nested(_ShardingEntrySchema),
        required=True,
        metadata={"description": "The collections to shard; all others stay unsharded."},
    )


class _VerificationSchema(Strict):
    enabled = _flag("Whether the commit succeeds only if both clusters are proved equal.", True)
    repair = fields.Enum(
        Repair,
        by_value=True,
        load_default=Repair.AUTO,
        metadata={
            "description": "Whether the commit repairs the differences that it finds: auto, or never."
        },
    )


class _NaturalOrderSchema(Strict):
    """One element of `copyInNaturalOrder`: a database, or "." for all, and optionally some of its collections."""

    database = _text("A database, or . for all.")
    collections = fields.List(
        _text("A collection."),
        validate=validate.Length(min=1),
        metadata={"description": "Collections of the database; all if omitted."},
    )


class _UsersAndRolesSchema(Strict):
    copy = Boolean(
        required=True,
        metadata={"description": "Whether the commit copies users and custom roles."},
    )
    databases = fields.List(
        _text("The name of a database."),
        load_default=list,
        validate=validate.Length(min=1),
        metadata={
            "description": "Copy only users and roles that are defined in these databases; all if omitted."
        },
    )
    onConflict = fields.Enum(
        OnConflict,
        by_value=True,
        load_default=OnConflict.FAIL,
        metadata={
            "description": "What to do if the destination has another definition of a user or role: fail refuses "
            "the start and the commit, skip keeps the definition of the destination."
        },
    )

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> UsersAndRoles | None:
        if not data["copy"]:
            return None
        return UsersAndRoles(tuple(data["databases"]), data["onConflict"])


class StartSchema(Strict):
    """The body of `POST /api/v1/start`; loads into StartOptions."""

    source = _text("The cluster to sync from.", enum=list(CLUSTERS))
    destination = _text("The cluster to sync to.", enum=list(CLUSTERS))
    buildIndexes = fields.Enum(
        BuildIndexes,
        by_value=True,
        load_default=BuildIndexes.BEFORE_DATA_COPY,
        metadata={
            "description": "Which indexes the destination gets besides those on _id, and when."
        },
    )
    enableUserWriteBlocking = _WriteBlockingField(
        load_default=WriteBlocking.DESTINATION_ONLY,
        metadata={
            "enum": [*(mode.value for mode in WriteBlocking), True, False],
            "default": WriteBlocking.DESTINATION_ONLY.value,
            "description": "On which clusters user writes are blocked.",
        },
    )
    reversible = _flag("Whether the sync can be reversed after the commit.", False)
    verification = fields.Nested(
        _VerificationSchema,
        load_default=lambda: {"enabled": True, "repair": Repair.AUTO},
        metadata={
            "description": "Settings of the verification, which compares both clusters during the sync."
        },
    )
    includeNamespaces = _filters("The namespaces to sync; all if empty.")
    excludeNamespaces = _filters("The namespaces not to sync.")
    sharding = fields.Nested(
        _ShardingSchema,
        metadata={
            "description": "The collections to shard; only for a sync from a replica set to a sharded cluster."
        },
    )
    preExistingDestinationData = _flag("Must be false: the destination must be empty.", False)
    copyInNaturalOrder = fields.List(
        fields.Nested(_NaturalOrderSchema),
        load_default=list,
        metadata={
            "description": "The collections of a replica set that are read in natural order, not in ranges of _id."
        },
    )
    detectRandomId = _flag("Accepted for compatibility with mongosync; no effect.", True)
    skipDiskSpaceCheck = _flag(
        "Whether to start even if the destination's disk seems too small.", False
    )
    instances = fields.List(
        _text("The --id of an instance."),
        load_default=list,
        validate=_refuse_repeated,
        metadata={
            "description": "The IDs of all instances that share a replica-set source, the coordinator first. Not "
            "needed for one instance, or for a sharded source.",
            "uniqueItems": True,
        },
    )
    eventSpool = fields.Enum(
        EventSpool,
        by_value=True,
        load_default=EventSpool.AUTO,
        metadata={
            "description": "When change events are saved on the destination until they are applied: when the oplog of "
            "the source may become too short, always, or never."
        },
    )
    usersAndRoles = fields.Nested(
        _UsersAndRolesSchema,
        metadata={
            "description": "Which users and custom roles the commit copies; none if omitted."
        },
    )

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> StartOptions:
        return StartOptions(
            source=data["source"],
            destination=data["destination"],
            build_indexes=data["buildIndexes"],
            write_blocking=data["enableUserWriteBlocking"],
            reversible=data["reversible"],
            verification=data["verification"]["enabled"],
            repair=data["verification"]["repair"],
            include_namespaces=tuple(data["includeNamespaces"]),
            exclude_namespaces=tuple(data["excludeNamespaces"]),
            sharding=data.get("sharding"),
            pre_existing_destination_data=data["preExistingDestinationData"],
            copy_in_natural_order=tuple(data["copyInNaturalOrder"]),
            detect_random_id=data["detectRandomId"],
            skip_disk_space_check=data["skipDiskSpaceCheck"],
            instances=tuple(data["instances"]),
            event_spool=data["eventSpool"],
            users_and_roles=data.get("usersAndRoles"),
        )


class ResetSchema(Strict):
    """The body of `POST /api/v1/reset`."""

    confirm = _text(
        "The name of the sync's destination, to confirm that the data synced to it may be dropped.",
        enum=list(CLUSTERS),
    )
    dryRun = _flag("Whether to only list what a reset would do, and change nothing.", False)


class RepairSchema(Strict):
    """The body of `POST /api/v1/repair`."""

    dryRun = _flag("Whether to only list what would be repaired, and change nothing.", False)


_UNLIMITED = "null removes the limit."


class _Amount(fields.Integer):
    """A whole number from 1 to `most`, or null; no string, boolean or fraction."""

    def __init__(self, meaning: str, most: int = 1_000_000_000_000) -> None:
        allowed = validate.Range(min=1, max=most)
        super().__init__(allow_none=True, validate=allowed, metadata={"description": meaning})

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> int:
        if type(value) is not int:
            raise ValidationError("Not a whole number.")
        return value


class _RatesSchema(Strict):
    copyBytesPerSecond = _Amount(f"How many bytes are copied per second, at most. {_UNLIMITED}")
    copyDocumentsPerSecond = _Amount(
        f"How many documents are copied per second, at most. {_UNLIMITED}"
    )
    eventsPerSecond = _Amount(f"How many change events are applied per second. {_UNLIMITED}")
    threads = _Amount(
        "How many threads of each instance read pages and write batches at the same time; the load level is another "
        f"limit. {_UNLIMITED}",
        most=1_000,
    )


def _time_of_day(meaning: str) -> fields.String:
    return fields.String(
        required=True,
        validate=validate.Regexp(r"([01][0-9]|2[0-3]):[0-5][0-9]\Z", error="Not a time as 06:30."),
        metadata={"pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "description": meaning},
    )


def _refuse_unknown_zone(name: str) -> None:
    try:
        zone_of(name)
    except (LookupError, ValueError, OSError) as error:
        raise ValidationError("Not a known time zone, such as UTC or Europe/Berlin.") from error


class _WindowSchema(Strict):
    class Meta(Strict.Meta):
        # "from" is a keyword of Python.
        include = {"from": _time_of_day("When the window begins each day, as HH:MM.")}

    to = _time_of_day("When the window ends, as HH:MM; the next day if that is before `from`.")
    timezone = fields.String(
        load_default="UTC",
        validate=_refuse_unknown_zone,
        metadata={"description": "The time zone of `from` and `to`, as an IANA name."},
    )
    limits = fields.Nested(
        _RatesSchema,
        required=True,
        metadata={
            "description": "The limits in the window, in place of those outside of it. "
            "A limit that is missing here does not apply."
        },
    )

    @validates_schema
    def _refuse_empty(self, data: Mapping[str, Any], **kwargs: Any) -> None:
        if data.get("from") == data.get("to"):
            raise ValidationError("Must differ from `from`.", field_name="to")


class _AutoSchema(Strict):
    enabled = Boolean(
        metadata={"description": "Whether the sync slows down while a cluster is overloaded."}
    )
    maxSourceLatencyMS = _Amount(
        "The latency of a small read on the source above which it is overloaded; null if it is not checked."
    )
    maxDestinationLatencyMS = _Amount(
        "The latency of a small read on the destination above which it is overloaded; null if it is not checked."
    )
    maxQueue = _Amount(
        "How many operations may wait on the primary of either cluster; null if that is not checked."
    )
    maxReplicationLagSeconds = _Amount(
        "How far the secondaries of either cluster may lag behind, in seconds; null if that is not checked."
    )


class LimitsSchema(_RatesSchema):
    """The body of `PATCH /api/v1/limits`: the limits to change."""

    windows = fields.List(
        fields.Nested(_WindowSchema),
        allow_none=True,
        validate=validate.Length(max=50),
        metadata={
            "description": "Periods of the day with other limits; if they overlap, the first one counts. Replaces all "
            "previous windows; null or an empty list removes them."
        },
    )
    auto = fields.Nested(
        _AutoSchema,
        allow_none=True,
        metadata={
            "description": "When the sync slows down by itself. Missing fields keep their values; null restores the "
            "defaults."
        },
    )


class MismatchesSchema(DocumentMismatchesSchema):
    """The query parameters of `GET /api/v1/mismatches`."""

    repaired = fields.Boolean(
        load_default=False,
        metadata={
            "description": "List the differences that were repaired or are being repaired, not those that are left."
        },
    )

    @validates_schema
    def _refuse_both(self, data: Mapping[str, Any], **kwargs: Any) -> None:
        if data.get("repaired") and "namespace" in data:
            raise ValidationError("Must not be combined with repaired.", "namespace")


class NamespacesSchema(Strict):
    """The query parameters of `GET /api/v1/namespaces`."""

    database = fields.String(
        validate=validate.Length(min=1),
        metadata={"description": "Show only the collections of this database of the source."},
    )
    after = fields.String(
        validate=validate.Length(min=1),
        metadata={
            "description": "Show only the collections after this one; send `next` of the previous page."
        },
    )
    limit = fields.Integer(
        load_default=1_000,
        validate=validate.Range(min=1, max=10_000),
        metadata={"description": "The maximum number of collections."},
    )
