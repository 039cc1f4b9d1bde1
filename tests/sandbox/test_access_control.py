"""Tests that access control refuses unauthenticated clients, and limits each user to the privileges of its roles.

With access control, the members must still authenticate each other, step down and restart.
"""

from collections.abc import Iterator

import pytest
from pymongo.errors import OperationFailure

from syncsvc.sandbox import ReplicaSet, SandboxError
from syncsvc.sandbox.replica_set import Client

UNAUTHORIZED = 13


@pytest.fixture(scope="module")
def guarded() -> Iterator[ReplicaSet]:
    with ReplicaSet(access_control=True) as replica_set:
        yield replica_set


def test_unauthenticated_clients_are_refused(guarded: ReplicaSet) -> None:
    with Client(guarded.members[0].address) as client:
        with pytest.raises(OperationFailure) as caught:
            client.list_database_names()
    assert caught.value.code == UNAUTHORIZED


def test_the_sync_user_writes_everywhere_but_is_not_root(guarded: ReplicaSet) -> None:
    with Client(guarded.uri) as client:
        client.anything.items.insert_one({})
        client.admin.command("replSetGetStatus")
        with pytest.raises(OperationFailure) as caught:
            client.admin.command("shutdown")
    assert caught.value.code == UNAUTHORIZED


def test_the_sync_user_may_block_writes_and_bypass_the_block(guarded: ReplicaSet) -> None:
    poor = guarded.create_user("writer", ["readWriteAnyDatabase"])
    with Client(guarded.uri) as client, Client(poor) as poor_client:
        client.admin.command({"setUserWriteBlockMode": 1, "global": True})
        client.test.items.insert_one({})
        with pytest.raises(OperationFailure, match="blocked"):
            poor_client.test.items.insert_one({})
        client.admin.command({"setUserWriteBlockMode": 1, "global": False})
        poor_client.test.items.insert_one({})


def test_root_may_administer_the_server(guarded: ReplicaSet) -> None:
    with guarded.client() as client:
        assert client.admin.command("getCmdLineOpts")["ok"] == 1


def test_a_user_has_the_given_roles_only(guarded: ReplicaSet) -> None:
    uri = guarded.create_user("reader @ home", ["readAnyDatabase"])
    with Client(uri) as client:
        client.test.items.find_one()
        with pytest.raises(OperationFailure) as caught:
            client.test.items.insert_one({})
    assert caught.value.code == UNAUTHORIZED


def test_a_user_with_an_unknown_role(guarded: ReplicaSet) -> None:
    with pytest.raises(SandboxError, match="user odd could not be created.*nonsense"):
        guarded.create_user("odd", ["nonsense"])


def test_members_step_down_and_restart_with_access_control(guarded: ReplicaSet) -> None:
    guarded.step_down()
    guarded.kill_member(0)
    guarded.restart_member(0)
    with Client(guarded.uri) as client:
        client.test.items.insert_one({})


def test_three_members_authenticate_each_other() -> None:
    with ReplicaSet(members=3, access_control=True) as replica_set:
        with Client(replica_set.uri, w=3) as client:
            client.test.items.insert_one({})
