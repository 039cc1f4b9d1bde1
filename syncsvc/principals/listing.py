"""Reads the users and custom roles of clusters. On a sharded cluster, these are stored on the config servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.options import UsersAndRoles
from syncsvc.principals.comparison import (
    AUTH_SCHEMA,
    Comparison,
    Identity,
    Kind,
    Listing,
    Principal,
    compare,
)
from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken

DATABASE = "admin"
COLLECTIONS = {Kind.USER: "system.users", Kind.ROLE: "system.roles"}
_VERSIONS = "system.version"
# Any database but admin: all of these have the same built-in roles.
_OTHER = "test"


def compare_clusters(
    options: UsersAndRoles, source: Client, destination: Client, stop: StopToken
) -> Comparison:
    """Read the users and custom roles of both clusters, and compare them.

    Raises the driver's errors, and `Cancelled`.
    """
    listings = (read(lambda: listing(client), stop) for client in (source, destination))
    return compare(options, *listings)


def listing(client: Client, after: Timestamp | None = None) -> Listing:
    """Return the users and custom roles of a cluster. Raises the driver's errors.

    The result includes all changes up to the cluster time `after`, unless it is None. A cluster that has never had a
    user has not saved an authSchema version; AUTH_SCHEMA is assumed.
    """
    versions = _find(client, _VERSIONS, after, filter={"_id": "authSchema"})
    return Listing(
        principals=tuple(
            Principal(kind, raw)
            for kind, name in COLLECTIONS.items()
            for raw in _find(client, name, after)
        ),
        auth_schema=next(
            (rawbson.decode(each)["currentVersion"] for each in versions), AUTH_SCHEMA
        ),
        own=frozenset(_authenticated(client)),
        built_in=frozenset(_built_in(client)),
    )


def read_again(client: Client, principal: Principal) -> Principal | None:
    """Return the current definition of a user or role; None if the cluster no longer has it.

    Raises the driver's errors.
    """
    kind, identity = principal.kind, principal.identity
    where = {kind.value: identity.name, "db": identity.database}
    found = _find(client, COLLECTIONS[kind], None, filter=where)
    return next((Principal(kind, raw) for raw in found), None)


def _find(client: Client, name: str, after: Timestamp | None, **find: Any) -> list[bytes]:
    concern: dict[str, Any] = {"level": "majority"}
    if after is not None:
        concern["afterClusterTime"] = after
    with RawCursor(client, DATABASE, {"find": name, **find, "readConcern": concern}) as cursor:
        return [bytes(each) for page in cursor.pages() for each in page.documents()]


def _authenticated(client: Client) -> Iterator[Identity]:
    """Yield the users that the client is logged in as; none if it has not logged in."""
    status = client.admin.command("connectionStatus")
    for each in status["authInfo"]["authenticatedUsers"]:
        yield Identity(Kind.USER.value, each["db"], each["user"])


def _built_in(client: Client) -> Iterator[Identity]:
    """Yield the built-in roles of the database `admin`, then those of all other databases, with an empty database name.

    Roles that the user may not see, because the action `viewRole` is missing, are left out. Raises the driver's other
    errors.
    """
    for name in (DATABASE, _OTHER):
        try:
            reply = client.get_database(name).command("rolesInfo", 1, showBuiltinRoles=True)
        except OperationFailure as error:
            if error.code != failures.UNAUTHORIZED:
                raise
            return
        for each in reply["roles"]:
            if each["isBuiltin"]:
                yield Identity(Kind.ROLE.value, name if name == DATABASE else "", each["role"])
