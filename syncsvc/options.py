"""The options of one sync, as given by `POST /api/v1/start`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import NamespaceMap, entries_of

# The names of the two clusters in the process options and in requests.
CLUSTERS = ("cluster0", "cluster1")
# Stands for every database in the option `copyInNaturalOrder`.
ANY_DATABASE = "."


class WriteBlocking(Enum):
    """The clusters whose user writes are blocked: the destination from the start on, the source from the commit on."""

    SOURCE_AND_DESTINATION = "sourceAndDestination"
    DESTINATION_ONLY = "destinationOnly"
    NONE = "none"


class BuildIndexes(Enum):
    """The indexes of the source that the sync builds on the destination, and the time at which it builds them.

    The indexes on `_id`, and on a sharded destination an index that supports each shard key, are always built.
    """

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
        """Return whether all hashed indexes are built, not only those that support a shard key."""
        return self in (BuildIndexes.BEFORE_DATA_COPY, BuildIndexes.AFTER_DATA_COPY)


class Repair(Enum):
    """The reaction of a commit to differences that the verification finds.

    AUTO: the commit repairs them and verifies again. NEVER: the commit fails with VerificationFailed.
    """

    AUTO = "auto"
    NEVER = "never"


class EventSpool(Enum):
    """The time from which change events are saved on the destination before they are applied.

    Saved events can be applied after the source's oplog has dropped them. AUTO: once the oplog may become too short for
    the sync. ALWAYS: from the start of the sync on. NEVER: not at all.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Presplit(Enum):
    """The way in which a sharded collection is divided among the shards of the destination before the copy.

    SAMPLE: by a sample of the source's documents. SOURCE: as on the source, if the collection has the same shard key
    there, otherwise as with SAMPLE. NONE: the server decides.
    """

    SAMPLE = "sample"
    SOURCE = "source"
    NONE = "none"


class RenamedOut(Enum):
    """The reaction to the rename of a synced collection to a name that the filter excludes.

    FAIL: the sync fails with RenamedOutOfFilter. DROP: the sync drops the collection on the destination.
    """

    FAIL = "fail"
    DROP = "drop"


class CopyReadPreference(Enum):
    """The members of the source's replica set that the copy reads, as a mode of MongoDB's read preferences.

    Capped collections are always read from the primary.
    """

    PRIMARY = "primary"
    PRIMARY_PREFERRED = "primaryPreferred"
    SECONDARY = "secondary"
    SECONDARY_PREFERRED = "secondaryPreferred"
    NEAREST = "nearest"


class OnConflict(Enum):
    """The reaction to a user or role that has another definition on the destination.

    That definition is never overwritten.

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
    """The options of a sync, with defaults filled in. `syncsvc.saved.stored` defines how they are saved."""

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
    # Whether a start needs no check of the free disk space on the destination.
    skip_disk_space_check: bool = False
    # The IDs of the instances that share the sync, the coordinator first; empty if not in the request.
    instances: tuple[str, ...] = ()
    event_spool: EventSpool = EventSpool.AUTO
    presplit: Presplit = Presplit.SAMPLE
    renamed_out: RenamedOut = RenamedOut.FAIL
    # None if no users and roles are copied.
    users_and_roles: UsersAndRoles | None = None
    copy_read_preference: CopyReadPreference = CopyReadPreference.PRIMARY
    # Tag sets, in the order in which they are tried. A member matches a set if the member has all tags of the set.
    # If there is no set, any member matches.
    copy_read_preference_tags: tuple[dict[str, str], ...] = ()
    # As in the request: which namespaces of the source get another name on the destination.
    namespace_remap: tuple[dict[str, Any], ...] = ()
    # The queries that select the documents to sync, by the name of the collection on the source.
    document_filters: DocumentFilters = DocumentFilters()

    @property
    def blocks_source(self) -> bool:
        """Return whether user writes to the source are blocked from the commit on."""
        return self.write_blocking is WriteBlocking.SOURCE_AND_DESTINATION

    @property
    def blocks_destination(self) -> bool:
        """Return whether user writes to the destination are blocked from the start until canWrite is true."""
        return self.write_blocking is not WriteBlocking.NONE

    def in_natural_order(self, namespace: Namespace) -> bool:
        """Return whether the start option `copyInNaturalOrder` selects the collection."""
        return any(
            each["database"] in (ANY_DATABASE, namespace.database)
            and namespace.collection in each.get("collections", [namespace.collection])
            for each in self.copy_in_natural_order
        )

    @property
    def namespaces(self) -> NamespaceFilter:
        return NamespaceFilter(self.include_namespaces, self.exclude_namespaces)

    @cached_property
    def names(self) -> NamespaceMap:
        """Return the map that converts namespaces between their names on the source and the destination."""
        return NamespaceMap(dict(entries_of(self.namespace_remap)))
