"""Names of databases and collections, and the rules that decide which of them belong to users.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SYSTEM_DATABASES = frozenset({"admin", "config", "local"})

# Databases with these prefixes are never copied or compared: sync services and verifiers keep them for themselves.
RESERVED_PREFIXES = ("mongosync_reserved_", "mongosync_internal_", "__mdb_internal")
RESERVED_PATTERN = f"^({'|'.join(RESERVED_PREFIXES)})"

# Regular expressions for the names of user databases and user collections. The functions below apply the same rules.
USER_DATABASE_PATTERN = (
    f"^(?!({'|'.join(sorted(SYSTEM_DATABASES))})$)(?!{'|'.join(RESERVED_PREFIXES)})"
)
USER_COLLECTION_PATTERN = r"^(?!system\.)"

# This prefix and the name of a time-series collection form the name of its buckets, the collection with its documents.
BUCKETS_PREFIX = "system.buckets."

# A regular expression for the UUIDs in the names of collections that servers create for themselves.
UUID_PATTERN = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# The maximum lengths that servers accept, in bytes: of a database name, of a name `database.collection`, and of such a
# name of a sharded collection.
LONGEST_DATABASE = 63
LONGEST_NAME = 255
LONGEST_SHARDED_NAME = 235
# Characters that servers refuse in the name of a database.
NOT_IN_DATABASES = frozenset('/\\. "$\0')

# How many namespaces a message names.
_MOST_NAMED = 5


class Namespace(NamedTuple):
    """The name of a collection or view in a database; the name of a whole database if `collection` is empty."""

    database: str
    collection: str

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"

    @property
    def buckets(self) -> Namespace:
        """Return the namespace of the buckets of a time-series collection with this name."""
        return Namespace(self.database, BUCKETS_PREFIX + self.collection)

    @property
    def owner(self) -> Namespace:
        """Return the time-series collection that owns these buckets; for other namespaces, the namespace itself."""
        return Namespace(self.database, self.collection.removeprefix(BUCKETS_PREFIX))


def some_of(names: Iterable[Namespace]) -> str:
    """Return the first few names in alphabetical order, for a message, with "and others" if there are more."""
    ordered = sorted(map(str, names))
    others = " and others" if len(ordered) > _MOST_NAMED else ""
    return ", ".join(ordered[:_MOST_NAMED]) + others


def is_user_database(name: str) -> bool:
    return name not in SYSTEM_DATABASES and not name.startswith(RESERVED_PREFIXES)


def is_user_namespace(namespace: Namespace) -> bool:
    """Return whether the namespace belongs to users: not in a system or reserved database, not `system.*`.

    Return False if the database is empty, as in the event `invalidate`, which has no namespace.
    """
    database, collection = namespace
    return bool(database) and is_user_database(database) and not collection.startswith("system.")


def folded(database: str, sharded: bool) -> bytes:
    """Return the name of a database without the difference between upper and lower case, encoded in UTF-8.

    A cluster refuses to have two databases for which the result is the same. Replica sets ignore the case of ASCII
    letters only, sharded clusters that of all letters. For these, the result is also the same for ß and ss, and for
    ligatures and their letters, although sharded clusters tell such names apart.
    """
    return (database.casefold() if sharded else database).encode().lower()


def differ_in_case(one: str, other: str, sharded: bool) -> bool:
    """Return whether two database names differ only in case, so that a cluster refuses to have both: see `folded`."""
    return one != other and folded(one, sharded) == folded(other, sharded)
