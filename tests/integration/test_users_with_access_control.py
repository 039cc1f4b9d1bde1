"""Copies users and roles between clusters with access control; tests logins, privileges and secrecy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from tests.support.blocks import USER_WRITES_BLOCKED
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.principals import LOCAL, add_role, add_user, fill, log_in
from tests.support.roles import READER, WRITER

COPY = {"usersAndRoles": {"copy": True}}
SKIP = {"usersAndRoles": {"copy": True, "onConflict": "skip"}}
SOURCE_ROLES = (*READER, "backup")
DESTINATION_ROLES = (*WRITER, "restore", "backup")
# An address of no machine (RFC 5737).
ELSEWHERE = [{"clientSource": ["192.0.2.1"]}]
USER_ADMIN = {"role": "userAdminAnyDatabase", "db": "admin"}
_UNAUTHORIZED = 13


@dataclass(frozen=True)
class Guarded:
    """A replica set with access control. `uri` is the connection string of the service's user."""

    side: Side
    uri: str

    def uri_of(self, name: str, password: str) -> str:
        """Return the connection string of another user, who is defined in the database admin."""
        return self.uri.replace(self.uri.split("//")[1].split("@")[0], f"{name}:{password}")

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
        # The service's user on the destination also exists on the source, where an application could use it.
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


@pytest.mark.slow
def test_users_are_copied_with_the_documented_roles(
    guarded: tuple[Guarded, Guarded], tmp_path: Path
) -> None:
    source, destination = guarded
    fill(source.side.client)
    add_role(source.side.client, "sync")
    add_user(source.side.client, "remote", "far away", authenticationRestrictions=ELSEWHERE)
    add_user(source.side.client, "clerk", "of users", roles=[USER_ADMIN])
    # These exist on both clusters with different passwords: they stay as they are.
    for name in ("root", "sync"):
        assert destination.side.client.admin.system.users.find_one({"_id": f"admin.{name}"})
    add_role(source.side.client, "migration", "admin", roles=[*DESTINATION_ROLES])
    add_user(source.side.client, "migrator", "copied", "admin", roles=["migration"])
    source.side.client.d.c.insert_one({"_id": 1})
    source.side.client.app.c.insert_one({"_id": 1})
    source.side.client.app.secret.insert_one({"_id": 1})
    uri = tmp_path / "uri"
    uri.write_text(destination.uri)
    uri.chmod(0o600)
    with Daemon(source.uri, uri, tmp_path).running() as daemon:
        assert_each_role_is_needed(daemon, source, destination)
        daemon.start(**SKIP)
        daemon.wait_until_committable()
        daemon.copy_users()
        assert_only_data_is_blocked(destination.side)
        # From now on, the daemon logs in to the destination as a user that it has copied.
        daemon.kill()
        uri.write_text(destination.uri_of("migrator", "copied"))
        daemon.run()
        daemon.wait_until_committable()
        source.side.client.admin.command("updateUser", "migrator", pwd="changed", roles=[])
        source.side.client.admin.command("updateRole", "migration", roles=[])
        plan = daemon.post("reset", {"confirm": "cluster1", "dryRun": True}).json()
        assert "user alice@app" in plan["usersAndRoles"]
        assert not {"user migrator@admin", "role migration@admin"} & {*plan["usersAndRoles"]}
        daemon.copy_users()
        daemon.commit()
        assert log_in(
            Side(without_credentials(destination.side), destination.side.client),
            "migrator",
            "copied",
            "admin",
        )
        answer = daemon.users()
        own = {each["name"] for each in answer if each["result"] == "own"}
        assert own == {"reader", "migrator"}
        kept = {each["name"] for each in answer if each["result"] == "kept"}
        assert kept == {"root", "sync", "writer", "migration"}
        assert_secret(source, destination, daemon)
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


def logged_in(side: Side, user: str, password: str) -> MongoClient[dict[str, Any]]:
    options: dict[str, Any] = {"username": user, "password": password, "authSource": "app"}
    return MongoClient(without_credentials(side), **options)


def assert_only_data_is_blocked(side: Side) -> None:
    """Fail unless users can log in while the sync blocks user writes, and can change users but no data.

    These users do not have the privilege to bypass the block.
    """
    with logged_in(side, "clerk", "of users") as clerk:
        clerk.app.command("createUser", "temporary", pwd="x", roles=["readWrite"])
        with logged_in(side, "temporary", "x") as temporary:
            with pytest.raises(OperationFailure) as raised:
                temporary.app.c.insert_one({})
            assert raised.value.code == USER_WRITES_BLOCKED
        clerk.app.command("dropUser", "temporary")


def assert_restricted(side: Side) -> None:
    """Fail unless users can log in with the source's passwords, and have only the privileges of their roles.

    A user whose `authenticationRestrictions` exclude the address of this machine must not be able to log in.
    """
    bare = Side(without_credentials(side), side.client)
    assert log_in(bare, "alice", "old secret") and not log_in(bare, "alice", "wrong")
    assert not log_in(bare, "remote", "far away")
    side.client.app.command("updateUser", "remote", authenticationRestrictions=LOCAL)
    assert log_in(bare, "remote", "far away")
    with logged_in(side, "bob", "geheim") as bob:
        assert bob.app.c.find_one() == {"_id": 1}
        for forbidden in (lambda: bob.app.c.insert_one({}), lambda: bob.app.secret.find_one()):
            with pytest.raises(OperationFailure) as raised:
                forbidden()
            assert raised.value.code == _UNAUTHORIZED


def assert_secret(source: Guarded, destination: Guarded, daemon: Daemon) -> None:
    """Fail if credentials of the source's users are in the output or in the saved metadata of the daemon."""
    stored = [
        secret
        for each in source.side.client.admin.system.users.find()
        for mechanism in each["credentials"].values()
        if isinstance(mechanism, dict)
        for secret in (mechanism["salt"], mechanism["storedKey"], mechanism["serverKey"])
    ]
    metadata = destination.side.client[METADATA_DATABASE]
    rows = [row for name in metadata.list_collection_names() for row in metadata[name].find()]
    report = daemon.get("report").text
    told = "".join([daemon.log, daemon.output, report, daemon.get("users").text, str(rows)])
    assert stored and not [each for each in stored if each in told]
