"""Users and custom roles of the clusters of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bson
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from syncsvc.engine.principal_copy import TEMPORARY
from syncsvc.sandbox.replica_set import Client
from tests.support.pair import Pair, Side

# The databases in which tests define users and roles.
DATABASES = ("app", "other", "admin", "$external")
READ = [{"resource": {"db": "app", "collection": "c"}, "actions": ["find"]}]
LOCAL = [{"clientSource": ["127.0.0.1"]}]
_AUTHENTICATION_FAILED = 18


@contextmanager
def cleared(pair: Pair) -> Iterator[None]:
    """Remove all users and roles in the databases of `DATABASES` from both clusters, before and after the block.

    The clusters must have no access control.
    """
    for side in (pair.source, pair.destination):
        clear(side)
    try:
        yield
    finally:
        for side in (pair.source, pair.destination):
            clear(side)


def clear(side: Side) -> None:
    for database in DATABASES:
        side.client[database].command("dropAllUsersFromDatabase")
        if database != "$external":
            side.client[database].command("dropAllRolesFromDatabase")


def add_role(client: Client, name: str, database: str = "app", **fields: Any) -> None:
    fields = {"privileges": [], "roles": [], **fields}
    client[database].command("createRole", name, **fields)


def add_user(
    client: Client, name: str, password: str, database: str = "app", **fields: Any
) -> None:
    client[database].command("createUser", name, pwd=password, **{"roles": [], **fields})


def fill(client: Client) -> None:
    """Create users and roles of all kinds, for example with nested roles, restrictions, or without a password."""
    add_role(client, "reader", privileges=READ)
    add_role(client, "outer", roles=["reader", "dbAdmin"], authenticationRestrictions=LOCAL)
    add_role(client, "wide", "admin", roles=[{"role": "outer", "db": "app"}, "clusterMonitor"])
    add_user(
        client, "alice", "old secret", roles=["outer"], customData={"n": bson.Int64(1), "$x": {}}
    )
    add_user(client, "bob", "geheim", roles=["reader"], mechanisms=["SCRAM-SHA-256"])
    add_user(
        client,
        "chief",
        "of admin",
        "admin",
        roles=["root", "wide"],
        authenticationRestrictions=LOCAL,
    )
    add_user(client, "carol", "of other", "other", roles=[{"role": "read", "db": "app"}])
    client["$external"].command(
        "createUser", "CN=machine,O=example", roles=[{"role": "reader", "db": "app"}]
    )


def documents(side: Side) -> dict[str, bytes]:
    """Return the stored documents of the users and roles in the databases of `DATABASES`, as BSON by `_id`."""
    names = ("system.users", "system.roles")
    found = (
        row for name in names for row in side.client.admin[name].find({"db": {"$in": [*DATABASES]}})
    )
    return {row["_id"]: bson.encode(row) for row in found}


def record_ids(side: Side) -> dict[str, int]:
    """Return the record IDs of the users in the databases of `DATABASES`, by `_id`.

    A user that is created again has a new record ID.
    """
    users = side.client.admin["system.users"]
    found = users.find({"db": {"$in": [*DATABASES]}}, show_record_id=True)
    return {row["_id"]: row["$recordId"] for row in found}


def log_in(
    side: Side,
    user: str,
    password: str,
    database: str = "app",
    mechanism: str = "SCRAM-SHA-256",
) -> bool:
    """Return whether the cluster accepts this user and password. `database` is the database that defines the user."""
    options: dict[str, Any] = {"username": user, "password": password, "authSource": database}
    with MongoClient[dict[str, Any]](side.uri, authMechanism=mechanism, **options) as client:
        try:
            client.admin.command("ping")
        except OperationFailure as error:
            assert error.code == _AUTHENTICATION_FAILED, error
            return False
        return True


def temporary_left(side: Side) -> set[str]:
    """Return the names of the cluster's temporary collections for users and roles, of any sync, that are not empty."""
    admin = side.client.admin
    found = (
        each for each in admin.list_collection_names() if each.startswith((*TEMPORARY.values(),))
    )
    return {each for each in found if admin[each].find_one() is not None}
