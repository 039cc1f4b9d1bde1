"""The saved form of the start options and of positions: schemas that write them and read them back.

They are separate from the schemas of the API, because a stricter check of requests must not refuse a saved sync.
Missing fields get the default of the dataclass, and unknown fields are ignored. So a field may be added without a new
format if older versions may ignore it. The saved names stay when an attribute is renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from marshmallow import EXCLUDE, Schema, fields, post_load

from syncsvc.options import (
    BuildIndexes,
    EventSpool,
    OnConflict,
    Repair,
    StartOptions,
    UsersAndRoles,
    WriteBlocking,
)
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


class StoredOptions(Stored):
    """The saved form of the start options.

    Fields have the names and values of the start request, except that `verification` is a boolean, `repair` is not
    nested in it, and `usersAndRoles` is null if `copy` is false. A sync that an older version started repairs nothing
    automatically.
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
    users_and_roles = fields.Nested(_StoredUsersAndRoles, data_key="usersAndRoles", allow_none=True)
