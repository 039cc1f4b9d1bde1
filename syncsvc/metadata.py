"""The metadata database of a sync: its name, and the handle with which it is read.

The saved state of a sync is in this database, on the cluster that is the destination when the sync is started. A
reversed sync also uses a database of the same name on the other cluster, for its event spool and its fence
(`syncsvc.saved.fence`).
"""

from __future__ import annotations

import re
from typing import Any

from pymongo.database import Database

from verifier.cluster.namespace import LONGEST_DATABASE

# A handle on the metadata database of one cluster. Commands that write to it go through a `ClusterWriter`.
Metadata = Database[dict[str, Any]]

# The default value of the option --id.
DEFAULT_ID = "coordinator"
METADATA_DATABASE = "mongosync_reserved_for_internal_use"
LONGEST_SYNC_NAME = LONGEST_DATABASE - len(METADATA_DATABASE) - 1
# Servers refuse a database whose name differs from another one only in case, so sync names contain no capital letters.
SYNC_NAME_PATTERN = re.compile(rf"[a-z0-9_-]{{1,{LONGEST_SYNC_NAME}}}")


def metadata_database(sync_name: str | None) -> str:
    """Return the name of the metadata database of a sync. `sync_name` is None for the sync without a name."""
    return METADATA_DATABASE if sync_name is None else f"{METADATA_DATABASE}_{sync_name}"


def sync_name(database: str) -> str | None:
    """Return the name of the sync whose metadata database is `database`; None if the sync has no name."""
    return database.removeprefix(METADATA_DATABASE).removeprefix("_") or None


def is_metadata(database: str) -> bool:
    """Return whether a database with this name can hold the state of a sync."""
    name = sync_name(database)
    is_named = name is not None and SYNC_NAME_PATTERN.fullmatch(name) is not None
    return database == METADATA_DATABASE or (is_named and database == metadata_database(name))
