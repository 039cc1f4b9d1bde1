"""The options of one sync, as `POST /api/v1/start` gives them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from verifier.cluster.filters import NamespaceFilter

# By these names the process and its requests know the two clusters.
CLUSTERS = ("cluster0", "cluster1")


class WriteBlocking(Enum):
    """On which clusters user writes are refused, from start (destination) and from commit (source)."""

    SOURCE_AND_DESTINATION = "sourceAndDestination"
    DESTINATION_ONLY = "destinationOnly"
    NONE = "none"


class BuildIndexes(Enum):
    """Which indexes the destination gets, and when; it always has those on `_id`."""

    BEFORE_DATA_COPY = "beforeDataCopy"
    AFTER_DATA_COPY = "afterDataCopy"
    EXCLUDE_HASHED = "excludeHashed"
    EXCLUDE_HASHED_AFTER_COPY = "excludeHashedAfterCopy"
    NEVER = "never"

    @property
    def after_copy(self) -> bool:
        """Whether the indexes are built when all documents are copied."""
        return self in (BuildIndexes.AFTER_DATA_COPY, BuildIndexes.EXCLUDE_HASHED_AFTER_COPY)

    @property
    def hashed(self) -> bool:
        """Whether hashed indexes are built."""
        return self in (BuildIndexes.BEFORE_DATA_COPY, BuildIndexes.AFTER_DATA_COPY)


@dataclass(frozen=True)
class StartOptions:
    """The start request with its defaults filled in. `syncsvc.saved.stored` has the form in which it is saved.

    `copy_in_natural_order` and `detect_random_id` are kept for the sake of the request, and change nothing: every
    collection is read in its natural order anyway.
    """

    source: str
    destination: str
    build_indexes: BuildIndexes = BuildIndexes.BEFORE_DATA_COPY
    write_blocking: WriteBlocking = WriteBlocking.DESTINATION_ONLY
    reversible: bool = False
    verification: bool = True
    include_namespaces: tuple[dict[str, Any], ...] = ()
    exclude_namespaces: tuple[dict[str, Any], ...] = ()
    sharding: dict[str, Any] | None = None
    pre_existing_destination_data: bool = False
    copy_in_natural_order: tuple[dict[str, Any], ...] = ()
    detect_random_id: bool = True
    skip_disk_space_check: bool = False

    @property
    def blocks_source(self) -> bool:
        """Whether users are kept from writing to the source, from the commit on."""
        return self.write_blocking is WriteBlocking.SOURCE_AND_DESTINATION

    @property
    def blocks_destination(self) -> bool:
        """Whether users are kept from writing to the destination, from the start until it may be written."""
        return self.write_blocking is not WriteBlocking.NONE

    @property
    def namespaces(self) -> NamespaceFilter:
        return NamespaceFilter(self.include_namespaces, self.exclude_namespaces)
