"""Copies users and roles between clusters with access control; tests privileges, logins, and secrecy of credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from syncsvc.sandbox import ReplicaSet
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.principals import add_role, fill, log_in
from tests.support.roles import READER, WRITER

COPY = {"usersAndRoles": {"copy": True}}
SKIP = {"usersAndRoles": {"copy": True, "onConflict": "skip"}}
SOURCE_ROLES = (*READER, "backup")
DESTINATION_ROLES = (*WRITER, "restore", "backup")
_UNAUTHORIZED = 13


@dataclass(frozen=True)
class Guarded:
    """A replica set with access control. `uri` is the connection string of the service's user."""

    side: Side
    uri: str

    def grant(self, name: str, *roles: str) -> None:
        self.side.client.admin.command("updateUser", name, roles=list(roles))


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Guarded, Guarded]]:
    with (
        ReplicaSet(name="source", access_control=True, members=3) as source,
        ReplicaSet(name="destination", access_control=True, members=3) as destination,
        source.client() as of_source,
        destination.client() as of_destination,
    ):
        # Each user of the service also exists on the other cluster, where an application uses it.
        uris = source.create_user("reader", SOURCE_ROLES), destination.create_user(
            "writer", DESTINATION_ROLES
        )
        source.create_user("writer", [])
        yield (
            Guarded(Side(source.root_uri, of_source), uris[0]),
            Guarded(Side(destination.root_uri, of_destination), uris[1]),
        )


def without_credentials(side: Side) -> str:
    return side.uri.replace(side.uri.split("//")[1].split("@")[0] + "@", "")


def refused(daemon: Daemon) -> list[str]:
    answer = daemon.post("preflight", daemon.start_body(**SKIP)).json()
    assert {each["error"] for each in answer["violations"]} <= {"NotAuthorized"}, answer
    return [each["errorDescription"] for each in answer["violations"]]


def test_users_are_copied_with_the_documented_roles(
    guarded: tuple[Guarded, Guarded], tmp_path: Path
) -> None:
    source, destination = guarded
    fill(source.side.client)
    add_role(source.side.client, "sync")
    # These exist on both clusters with different passwords: they stay as they are.
    for name in ("root", "sync"):
        assert destination.side.client.admin.system.users.find_one({"_id": f"admin.{name}"})
    source.side.client.d.c.insert_one({"_id": 1})
    source.side.client.app.c.insert_one({"_id": 1})
    source.side.client.app.secret.insert_one({"_id": 1})
    daemon = Daemon(source.uri, destination.uri, tmp_path)
    try:
        daemon.run()
        assert_each_role_is_needed(daemon, source, destination)
        daemon.start(**SKIP)
        daemon.commit()
        assert daemon.progress()["usersAndRoles"]["kept"] == 2
        answer = daemon.users()
        own = {each["name"] for each in answer if each["result"] == "own"}
        assert own == {"reader", "writer"}
        assert_secret(source, destination, daemon)
    finally:
        daemon.close()
    Pair(source.side, destination.side).assert_equal()
    assert_restricted(destination.side)
    names = {each["_id"] for each in destination.side.client.admin.system.users.find()}
    assert "admin.reader" not in names


def assert_each_role_is_needed(daemon: Daemon, source: Guarded, destination: Guarded) -> None:
    users = daemon.post("preflight", daemon.start_body(**COPY)).json()["usersAndRoles"]
    assert users["conflicts"] == 2
    for side, name, roles in (
        (source, "reader", SOURCE_ROLES),
        (destination, "writer", DESTINATION_ROLES),
    ):
        for role in sorted({"backup", "restore"} & {*roles}):
            side.grant(name, *(each for each in roles if each != role))
            found = refused(daemon)
            assert any(role in each and "users and roles" in each for each in found), found
        side.grant(name, *roles)


def assert_restricted(side: Side) -> None:
    """Fail unless applications can log in with their old passwords, and have exactly their rights."""
    bare = Side(without_credentials(side), side.client)
    assert log_in(bare, "alice", "old secret") and not log_in(bare, "alice", "wrong")
    options = {"username": "bob", "password": "geheim", "authSource": "app"}
    with MongoClient(bare.uri, **options) as bob:
        assert bob.app.c.find_one() == {"_id": 1}
        for forbidden in (lambda: bob.app.c.insert_one({}), lambda: bob.app.secret.find_one()):
            with pytest.raises(OperationFailure) as raised:
                forbidden()
            assert raised.value.code == _UNAUTHORIZED


def assert_secret(source: Guarded, destination: Guarded, daemon: Daemon) -> None:
    """Fail if credentials are in the output of the daemon, or in the database of its metadata."""
    stored = [
        secret
        for each in source.side.client.admin.system.users.find()
        for mechanism in each["credentials"].values()
        if isinstance(mechanism, dict)
        for secret in (mechanism["salt"], mechanism["storedKey"], mechanism["serverKey"])
    ]
    metadata = destination.side.client.mongosync_reserved_for_internal_use
    rows = [row for name in metadata.list_collection_names() for row in metadata[name].find()]
    report = daemon.get("report").text
    told = "".join([daemon.log, daemon.output, report, daemon.get("users").text, str(rows)])
    assert stored and not [each for each in stored if each in told]
