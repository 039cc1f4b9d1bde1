"""The saved form of the start options and of change stream positions: schemas that write them and read them back.

These schemas are separate from the schemas of the API, because a stricter check of requests must not refuse a saved
sync. Missing optional fields get a default, in most cases that of the dataclass, and unknown fields are ignored. So a
field may be added without a new format if older versions may ignore it. If you rename an attribute, set its `data_key`
to the old name: the saved name must not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from marshmallow import EXCLUDE, Schema, fields, post_load

from syncsvc.options import (
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
from verifier.cluster.document_filters import DocumentFilters, filters_of, rows_of
from verifier.cluster.times import Position


class Stored(Schema):
    """Base class of schemas that save and load the dataclass `kind`. Lists are loaded as tuples."""

    kind: ClassVar[type]

    class Meta:
        unknown = EXCLUDE

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> Any:
        return self.kind(
            **{name: tuple(each) if isinstance(each, list) else each for name, each in data.items()}
        )


class StoredPosition(Stored):
    kind = Position

    token = fields.Dict(required=True)
    time = fields.Raw(required=True)


class _StoredUsersAndRoles(Stored):
    kind = UsersAndRoles

    databases = fields.List(fields.String())
    on_conflict = fields.Enum(OnConflict, by_value=True, data_key="onConflict")


class _StoredFilters(fields.Field[DocumentFilters]):
    """A field with the queries of document filters. Each query is saved as text, in canonical Extended JSON.

    A query cannot be saved as a part of a document, because servers refuse to store some queries.
    """

    def _serialize(self, value: Any, attr: Any, obj: Any, **kwargs: Any) -> list[dict[str, str]]:
        return rows_of(value)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> DocumentFilters:
        return filters_of(value)


class StoredOptions(Stored):
    """The saved form of the start options.

    Fields have the names and values of the start request, with five exceptions: `verification.enabled` is saved as
    `verification`, and `verification.repair` as `repair`; `usersAndRoles` has no field `copy`, and is null if no users
    and roles are copied; the queries of `documentFilter` are saved as text; and a boolean `enableUserWriteBlocking` is
    saved as the mode that it stands for. If a version without repairs started the sync, `repair` is missing and loads
    as `never`.
    """

    kind = StartOptions

    source = fields.String(required=True)
    destination = fields.String(required=True)
    build_indexes = fields.Enum(BuildIndexes, by_value=True, data_key="buildIndexes")
    write_blocking = fields.Enum(WriteBlocking, by_value=True, data_key="enableUserWriteBlocking")
    reversible = fields.Boolean()
    verification = fields.Boolean()
    repair = fields.Enum(Repair, by_value=True, load_default=Repair.NEVER)
    include_namespaces = fields.List(fields.Dict(), data_key="includeNamespaces")
    exclude_namespaces = fields.List(fields.Dict(), data_key="excludeNamespaces")
    sharding = fields.Dict(allow_none=True)
    pre_existing_destination_data = fields.Boolean(data_key="preExistingDestinationData")
    copy_in_natural_order = fields.List(fields.Dict(), data_key="copyInNaturalOrder")
    detect_random_id = fields.Boolean(data_key="detectRandomId")
    skip_disk_space_check = fields.Boolean(data_key="skipDiskSpaceCheck")
    instances = fields.List(fields.String())
    event_spool = fields.Enum(EventSpool, by_value=True, data_key="eventSpool")
    presplit = fields.Enum(Presplit, by_value=True)
    renamed_out = fields.Enum(RenamedOut, by_value=True, data_key="renamedOutOfFilter")
    users_and_roles = fields.Nested(_StoredUsersAndRoles, data_key="usersAndRoles", allow_none=True)
    copy_read_preference = fields.Enum(
        CopyReadPreference, by_value=True, data_key="copyReadPreference"
    )
    copy_read_preference_tags = fields.List(fields.Dict(), data_key="copyReadPreferenceTags")
    namespace_remap = fields.List(fields.Dict(), data_key="namespaceRemap")
    document_filters = _StoredFilters(data_key="documentFilter")
