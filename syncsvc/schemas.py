"""The schemas of request bodies and query parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from syncsvc.limits import zone_of
from syncsvc.options import (
    CLUSTERS,
    BuildIndexes,
    CopyReadPreference,
    EventSpool,
    OnConflict,
    Presplit,
    RenamedOut,
    Repair,
    StartOptions,
    UsersAndRoles,
    WriteBlocking,
)
from verifier.cluster.document_filter_schema import document_filters, filters_given
from verifier.cluster.filter_schema import ONE_DATABASE, NamespaceFilterSchema
from verifier.cluster.namespace import USER_COLLECTION_PATTERN, USER_DATABASE_PATTERN
from verifier.cluster.remap_schema import remap_field
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
    """A field for one element of a shard key: {"name": 1} or {"name": "hashed"}.

    A direction of -1 is accepted here. A later check refuses it with the error InvalidShardingEntry and the reason.
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


def _choice(default: Enum, meaning: str) -> fields.Enum[Any]:
    """Return a field that accepts the values of the Enum class of `default`, and is `default` if it is missing.

    `meaning` is the description of the field in the OpenAPI document.
    """
    return fields.Enum(
        type(default), by_value=True, load_default=default, metadata={"description": meaning}
    )


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
        "Whether to create indexes on the destination that shard keys need and the source lacks.",
        False,
    )
    shardingEntries = fields.List(
        fields.Nested(_ShardingEntrySchema),
        required=True,
        metadata={"description": "The collections to shard; all others stay unsharded."},
    )


class _VerificationSchema(Strict):
    enabled = _flag(
        "Whether the sync compares both clusters; if true, the commit succeeds only if no difference remains.",
        True,
    )
    repair = _choice(
        Repair.AUTO,
        "Whether the commit repairs the differences that it finds: auto (it does), or never.",
    )


class _NaturalOrderSchema(Strict):
    """One element of `copyInNaturalOrder`: a database ("." for all databases), and optionally some collections."""

    database = _text('A database, or "." for all databases.')
    collections = fields.List(
        _text("A collection."),
        validate=validate.Length(min=1),
        metadata={
            "description": "The collections of the database to read in natural order; all if omitted."
        },
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
    onConflict = _choice(
        OnConflict.FAIL,
        "The reaction if the destination has another definition of a user or role: fail (the start "
        "and the commit are refused), or skip (the destination keeps its definition).",
    )

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> UsersAndRoles | None:
        if not data["copy"]:
            return None
        return UsersAndRoles(tuple(data["databases"]), data["onConflict"])


class StartSchema(Strict):
    """The body of `POST /api/v1/start` and of `POST /api/v1/preflight`; loads into StartOptions."""

    source = _text("The cluster to sync from.", enum=list(CLUSTERS))
    destination = _text("The cluster to sync to.", enum=list(CLUSTERS))
    buildIndexes = _choice(
        BuildIndexes.BEFORE_DATA_COPY,
        "Which indexes of the source the sync builds on the destination, and when. Indexes on _id, and an index for "
        "each shard key, are always built.",
    )
    enableUserWriteBlocking = _WriteBlockingField(
        load_default=WriteBlocking.DESTINATION_ONLY,
        metadata={
            "enum": [*(mode.value for mode in WriteBlocking), True, False],
            "default": WriteBlocking.DESTINATION_ONLY.value,
            "description": "On which clusters user writes are blocked: the destination from the start on, the source "
            "from the commit on. true means sourceAndDestination, and false means none.",
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
    preExistingDestinationData = _flag(
        "Whether the destination may hold data that does not belong to the sync. The sync does not touch such data. If "
        "true, enableUserWriteBlocking must be none.",
        False,
    )
    copyInNaturalOrder = fields.List(
        fields.Nested(_NaturalOrderSchema),
        load_default=list,
        metadata={
            "description": "The collections that the copy reads in natural order instead of in ranges of _id, even "
            "if they are large. No effect on a sharded source."
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
    eventSpool = _choice(
        EventSpool.AUTO,
        "When change events are saved on the destination until they are applied: auto (when the "
        "oplog of the source may become too short), always, or never.",
    )
    presplit = _choice(
        Presplit.SAMPLE,
        "How sharded collections are divided among the shards of the destination before the copy: "
        "sample (by a sample of the documents), source (as on the sharded source), or none (as the server decides).",
    )
    renamedOutOfFilter = _choice(
        RenamedOut.FAIL,
        "What happens when a synced collection is renamed to a name that the filter excludes: fail "
        "(the sync fails), or drop (the collection is dropped on the destination).",
    )
    usersAndRoles = fields.Nested(
        _UsersAndRolesSchema,
        metadata={
            "description": "Which users and custom roles the commit copies; none if omitted."
        },
    )
    namespaceRemap = remap_field(
        "The collections, views and databases of the source that have another name on the destination."
    )
    copyReadPreference = _choice(
        CopyReadPreference.PRIMARY,
        "Which members of a replica-set source the copy reads from. Capped collections are read from the primary.",
    )
    copyReadPreferenceTags = fields.List(
        fields.Dict(fields.String(), fields.String()),
        load_default=list,
        metadata={
            "description": "Tag sets, in order of preference. The copy uses the first set that matches a member "
            "allowed by copyReadPreference, and reads only from members that match this set. If empty, tags do not "
            "matter. Must be empty if copyReadPreference is primary."
        },
    )

    documentFilter = document_filters(
        "Queries that select the synced documents of single collections; collections without a query are synced "
        "completely."
    )

    @validates_schema
    def _refuse_tags_of_primary(self, data: Mapping[str, Any], **kwargs: Any) -> None:
        primary = data["copyReadPreference"] is CopyReadPreference.PRIMARY
        if primary and data["copyReadPreferenceTags"]:
            raise ValidationError(
                "Must be empty if copyReadPreference is primary.", "copyReadPreferenceTags"
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
            renamed_out=data["renamedOutOfFilter"],
            presplit=data["presplit"],
            users_and_roles=data.get("usersAndRoles"),
            copy_read_preference=data["copyReadPreference"],
            copy_read_preference_tags=tuple(data["copyReadPreferenceTags"]),
            namespace_remap=tuple(data["namespaceRemap"]),
            document_filters=filters_given(data["documentFilter"]),
        )


class ResetSchema(Strict):
    """The body of `POST /api/v1/reset`."""

    confirm = _text(
        "The name of the sync's destination, to confirm that the data synced to it may be dropped.",
        enum=list(CLUSTERS),
    )
    dryRun = _flag("Whether to only list the actions of the reset, and change nothing.", False)


class RepairSchema(Strict):
    """The body of `POST /api/v1/repair`."""

    dryRun = _flag(
        "Whether to only list the differences, with the action of a repair for each, and change nothing.",
        False,
    )


_UNLIMITED = "null removes the limit. No limit applies during a commit."


class _Amount(fields.Integer):
    """A field that accepts a whole number from 1 to `most`, or null, but no string, boolean or fraction."""

    def __init__(self, meaning: str, most: int = 1_000_000_000_000) -> None:
        allowed = validate.Range(min=1, max=most)
        super().__init__(allow_none=True, validate=allowed, metadata={"description": meaning})

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> int:
        if type(value) is not int:
            raise ValidationError("Not a whole number.")
        return value


class _RatesSchema(Strict):
    copyBytesPerSecond = _Amount(
        f"The maximum number of bytes that all instances together copy per second; {_UNLIMITED}"
    )
    copyDocumentsPerSecond = _Amount(
        f"The maximum number of documents that all instances together copy per second; {_UNLIMITED}"
    )
    eventsPerSecond = _Amount(
        "The maximum number of change events that all instances together apply per second; it is suspended while the "
        f"sync could fail because of it; {_UNLIMITED}"
    )
    threads = _Amount(
        "The maximum number of threads that copy documents or apply change events at the same time in each instance; "
        f"the load level limits them, too; {_UNLIMITED}",
        most=1_000,
    )


def _time_of_day(meaning: str) -> fields.String:
    return fields.String(
        required=True,
        validate=validate.Regexp(
            r"([01][0-9]|2[0-3]):[0-5][0-9]\Z", error="Must be a time such as 06:30."
        ),
        metadata={"pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "description": meaning},
    )


def _refuse_unknown_zone(name: str) -> None:
    try:
        zone_of(name)
    except (LookupError, ValueError, OSError) as error:
        raise ValidationError(
            "This host does not know the time zone. Use an IANA name, such as UTC or Europe/Berlin."
        ) from error


class _WindowSchema(Strict):
    class Meta(Strict.Meta):
        # "from" is a keyword of Python.
        include = {"from": _time_of_day("The time at which the window begins each day, as HH:MM.")}

    to = _time_of_day(
        "The time at which the window ends, as HH:MM. If it is before `from`, the window ends on the next day."
    )
    timezone = fields.String(
        load_default="UTC",
        validate=_refuse_unknown_zone,
        metadata={"description": "The time zone of `from` and `to`, as an IANA name."},
    )
    limits = fields.Nested(
        _RatesSchema,
        required=True,
        metadata={
            "description": "The limits during the window. They replace all limits that apply outside of it: a limit "
            "that is missing here does not apply during the window."
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
        "The latency of a small read, in ms, above which the source counts as overloaded; null disables this check."
    )
    maxDestinationLatencyMS = _Amount(
        "The latency of a small read, in ms, above which the destination counts as overloaded; null disables this "
        "check."
    )
    maxQueue = _Amount(
        "The number of operations waiting on the primary above which a replica set counts as overloaded; null disables "
        "this check. It is not made on a sharded cluster."
    )
    maxReplicationLagSeconds = _Amount(
        "The lag of the slowest secondary, in seconds, above which a replica set counts as overloaded; null disables "
        "this check. It is not made on a sharded cluster."
    )


class LimitsSchema(_RatesSchema):
    """The body of `PATCH /api/v1/limits`: the limits to change."""

    windows = fields.List(
        fields.Nested(_WindowSchema),
        allow_none=True,
        validate=validate.Length(max=50),
        metadata={
            "description": "Periods of the day with their own limits; if periods overlap, the first one applies. The "
            "list replaces all previous windows; null or an empty list removes all windows."
        },
    )
    auto = fields.Nested(
        _AutoSchema,
        allow_none=True,
        metadata={
            "description": "The conditions under which the sync slows down automatically. Missing fields keep their "
            "values; null restores the defaults."
        },
    )


class MismatchesSchema(DocumentMismatchesSchema):
    """The query parameters of `GET /api/v1/mismatches`."""

    repaired = fields.Boolean(
        load_default=False,
        metadata={
            "description": "Whether to list the differences that were or are being repaired (minDurationSecs then has "
            "no effect); if false, list the remaining differences."
        },
    )

    @validates_schema
    def _refuse_both(self, data: Mapping[str, Any], **kwargs: Any) -> None:
        if data.get("repaired") and "namespace" in data:
            raise ValidationError("Must not be combined with repaired=true.", "namespace")


class NamespacesSchema(Strict):
    """The query parameters of `GET /api/v1/namespaces`."""

    database = fields.String(
        validate=validate.Length(min=1),
        metadata={"description": "Show only the collections of this database of the source."},
    )
    after = fields.String(
        validate=validate.Length(min=1),
        metadata={
            "description": "List only the collections whose names sort after this name. To get the next page, use the "
            "value of `next` from the previous answer."
        },
    )
    limit = fields.Integer(
        load_default=1_000,
        validate=validate.Range(min=1, max=10_000),
        metadata={"description": "The maximum number of collections in the answer."},
    )
