"""The options of one sync, as given by `POST /api/v1/start`. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace

# The names of the two clusters in the process options and in requests.
CLUSTERS = ("cluster0", "cluster1")
# Stands for every database in the option `copyInNaturalOrder`.
ANY_DATABASE = "."


class WriteBlocking(Enum):
    """On which clusters the sync blocks user writes: the destination from the start, the source from the commit on."""

    SOURCE_AND_DESTINATION = "sourceAndDestination"
    DESTINATION_ONLY = "destinationOnly"
    NONE = "none"


class BuildIndexes(Enum):
    """Which indexes the sync builds on the destination, and when. The indexes on `_id` are always built."""

    BEFORE_DATA_COPY = "beforeDataCopy"
    AFTER_DATA_COPY = "afterDataCopy"
    EXCLUDE_HASHED = "excludeHashed"
    EXCLUDE_HASHED_AFTER_COPY = "excludeHashedAfterCopy"
    NEVER = "never"

    @property
    def after_copy(self) -> bool:
        """Return whether the indexes are built after all documents are copied; False if none are built."""
        return self in (BuildIndexes.AFTER_DATA_COPY, BuildIndexes.EXCLUDE_HASHED_AFTER_COPY)

    @property
    def hashed(self) -> bool:
        """Return whether hashed indexes are built."""
        return self in (BuildIndexes.BEFORE_DATA_COPY, BuildIndexes.AFTER_DATA_COPY)


class Repair(Enum):
    """The option for the repair of differences that the verification finds before the commit.

    AUTO: it repairs them and verifies again. NEVER: it fails with VerificationFailed.
    """

    AUTO = "auto"
    NEVER = "never"


class EventSpool(Enum):
    """When change events are saved on the destination until they are applied, so that the source's oplog may drop them.

    AUTO: once the oplog may become too short for the sync. ALWAYS: from the start of the sync on. NEVER: not at all.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class OnConflict(Enum):
    """The reaction if the destination has another definition of a user or role, which is never overwritten.

    FAIL: refuse the start and the commit. SKIP: keep the definition of the destination.
    """

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class UsersAndRoles:
    """Selects the users and custom roles to copy: those defined in `databases`, or all if `databases` is empty."""

    databases: tuple[str, ...] = ()
    on_conflict: OnConflict = OnConflict.FAIL


@dataclass(frozen=True)
class StartOptions:
    """The options of a sync, with defaults filled in. `syncsvc.saved.stored` has their saved form."""

    # Names of `CLUSTERS`.
    source: str
    destination: str
    build_indexes: BuildIndexes = BuildIndexes.BEFORE_DATA_COPY
    write_blocking: WriteBlocking = WriteBlocking.DESTINATION_ONLY
    reversible: bool = False
    verification: bool = True
    repair: Repair = Repair.AUTO
    include_namespaces: tuple[dict[str, Any], ...] = ()
    exclude_namespaces: tuple[dict[str, Any], ...] = ()
    # As in the request; None if absent.
    sharding: dict[str, Any] | None = None
    pre_existing_destination_data: bool = False
    copy_in_natural_order: tuple[dict[str, Any], ...] = ()
    # Accepted for compatibility with mongosync; no effect.
    detect_random_id: bool = True
    skip_disk_space_check: bool = False
    # The IDs of the instances that share the sync, the coordinator first; empty if not in the request.
    instances: tuple[str, ...] = ()
    event_spool: EventSpool = EventSpool.AUTO
    # None if no users and roles are copied.
    users_and_roles: UsersAndRoles | None = None

    @property
    def blocks_source(self) -> bool:
        """Return whether user writes to the source are blocked from the commit on."""
        return self.write_blocking is WriteBlocking.SOURCE_AND_DESTINATION

    @property
    def blocks_destination(self) -> bool:
        """Return whether user writes to the destination are blocked from the start until canWrite is true."""
        return self.write_blocking is not WriteBlocking.NONE

    def in_natural_order(self, namespace: Namespace) -> bool:
        """Return whether `copy_in_natural_order` names the collection."""
        return any(
            each["database"] in (ANY_DATABASE, namespace.database)
            and namespace.collection in each.get("collections", [namespace.collection])
            for each in self.copy_in_natural_order
        )

    @property
    def namespaces(self) -> NamespaceFilter:
        return NamespaceFilter(self.include_namespaces, self.exclude_namespaces)
