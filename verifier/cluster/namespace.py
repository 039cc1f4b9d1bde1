"""Namespaces, and which of them belong to users. Pure."""

from __future__ import annotations

from typing import NamedTuple

SYSTEM_DATABASES = frozenset({"admin", "config", "local"})

# Databases that sync services and verifiers keep for themselves; never copied, never compared.
RESERVED_PREFIXES = ("mongosync_reserved_", "mongosync_internal_", "__mdb_internal")


class Namespace(NamedTuple):
    """A database and one of its collections or views."""

    database: str
    collection: str

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"


def is_user_database(name: str) -> bool:
    return name not in SYSTEM_DATABASES and not name.startswith(RESERVED_PREFIXES)


def is_user_namespace(namespace: Namespace) -> bool:
    """Whether documents of the namespace are a user's: not of a system or reserved database, not `system.*`."""
    return is_user_database(namespace.database) and not namespace.collection.startswith("system.")
