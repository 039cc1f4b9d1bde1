"""Namespaces, and which of them belong to users. Pure."""

from __future__ import annotations

from typing import NamedTuple

SYSTEM_DATABASES = frozenset({"admin", "config", "local"})

# Databases that sync services and verifiers keep for themselves; never copied, never compared.
RESERVED_PREFIXES = ("mongosync_reserved_", "mongosync_internal_", "__mdb_internal")
RESERVED_PATTERN = f"^({'|'.join(RESERVED_PREFIXES)})"

# Regular expressions that the names of databases and collections of users match, which the functions below know, too.
USER_DATABASE_PATTERN = (
    f"^(?!({'|'.join(sorted(SYSTEM_DATABASES))})$)(?!{'|'.join(RESERVED_PREFIXES)})"
)
USER_COLLECTION_PATTERN = r"^(?!system\.)"

# In front of a time-series collection's name, the name of the collection that holds its documents, the buckets.
BUCKETS_PREFIX = "system.buckets."


class Namespace(NamedTuple):
    """A database and one of its collections or views."""

    database: str
    collection: str

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"

    @property
    def buckets(self) -> Namespace:
        """Where the documents of a time-series collection of this name are."""
        return Namespace(self.database, BUCKETS_PREFIX + self.collection)

    @property
    def owner(self) -> Namespace:
        """The time-series collection whose buckets have this name; the namespace itself where it is none of buckets."""
        return Namespace(self.database, self.collection.removeprefix(BUCKETS_PREFIX))


def is_user_database(name: str) -> bool:
    return name not in SYSTEM_DATABASES and not name.startswith(RESERVED_PREFIXES)


def is_user_namespace(namespace: Namespace) -> bool:
    """Whether documents of the namespace are a user's: not of a system or reserved database, not `system.*`."""
    return is_user_database(namespace.database) and not namespace.collection.startswith("system.")
