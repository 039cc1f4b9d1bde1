"""Users and custom roles are copied at the commit; conflicts are refused or kept, and nothing is ever overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.fleet import Fleet
from tests.support.pair import REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.principals import (
    LOCAL,
    READ,
    add_role,
    add_user,
    cleared,
    documents,
    fill,
    log_in,
    temporary_left,
)
from tests.support.waiting import wait_for

COPY = {"usersAndRoles": {"copy": True}}


@pytest.fixture(autouse=True)
def principals(pair: Pair) -> Iterator[None]:
    with cleared(pair):
        pair.source.client.d.c.insert_many({"_id": n} for n in range(10))
        yield


def results(daemon: Daemon) -> dict[str, str]:
    """Return what a commit would do now with each user and role, by name."""
    return {f"{each['name']}@{each['database']}": each["result"] for each in daemon.users()}


def preflight(daemon: Daemon, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = daemon.post("preflight", daemon.start_body(**options)).json()
    return answer


@across(REPLICA_SETS, TO_SHARDED, SHARDED)
@pytest.mark.three_members
def test_applications_log_in_on_the_destination_with_their_old_passwords(
    pair: Pair, daemon: Daemon
) -> None:
    source, destination = pair.source, pair.destination
    fill(source.client)
    asked = preflight(daemon, **COPY)
    assert asked["violations"] == []
    assert asked["usersAndRoles"] == {"users": 5, "roles": 3, "equal": 0, "kept": 0, "conflicts": 0}
    daemon.start(**COPY)
    assert set(results(daemon).values()) == {"copy"}
    shown = daemon.wait_until_committable()["usersAndRoles"]
    assert shown == {"copied": False, "users": 0, "roles": 0, "equal": 0, "kept": 0}
    assert documents(destination) == {}
    # Changed during the sync.
    source.client.app.command("updateUser", "alice", pwd="new secret")
    add_user(source.client, "late", "just in time")
    daemon.commit()
    assert documents(destination) == documents(source)
    assert temporary_left(destination) == set()
    for user, password, database in (
        ("alice", "new secret", "app"),
        ("bob", "geheim", "app"),
        ("late", "just in time", "app"),
        ("chief", "of admin", "admin"),
    ):
        assert log_in(destination, user, password, database)
    assert log_in(destination, "alice", "new secret", mechanism="SCRAM-SHA-1")
    assert not log_in(destination, "alice", "old secret")
    shown = daemon.progress()["usersAndRoles"]
    assert shown == {"copied": True, "users": 6, "roles": 3, "equal": 0, "kept": 0}
    assert set(results(daemon).values()) == {"equal"}
    entries = daemon.report()["timeline"]
    assert "copied 6 users and 3 roles" in str(entries)
    pair.assert_equal()


def conflict(answer: Any) -> bool:
    return bool(answer.json().get("error") == "UserOrRoleExists")


def test_a_conflict_refuses_the_start_and_the_commit_by_name(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    # Equal: no conflict.
    add_role(destination, "reader", privileges=READ)
    add_user(destination, "alice", "of the destination")
    refused = daemon.post("start", daemon.start_body(**COPY))
    assert conflict(refused) and "user alice@app" in refused.json()["errorDescription"]
    (violation,) = preflight(daemon, **COPY)["violations"]
    assert violation["error"] == "UserOrRoleExists"
    destination.app.command("dropUser", "alice")
    daemon.start(**COPY)
    daemon.wait_until_committable()
    add_user(destination, "bob", "of the destination")
    assert results(daemon)["bob@app"] == "conflict" and results(daemon)["reader@app"] == "equal"
    wait_for(lambda: conflict(daemon.post("commit")), "the commit is refused")
    assert daemon.progress()["state"] == "RUNNING"
    destination.app.command("dropUser", "bob")
    with daemon.held_at(Point.STEP_DONE, "definitions prepared"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "definitions prepared")
        add_user(destination, "bob", "of the destination")
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "UserOrRoleExists" and "user bob@app" in failed["errorDescription"]
    assert {*documents(pair.destination)} == {"app.reader", "app.bob"}
    destination.app.command("dropUser", "bob")
    daemon.resume()
    daemon.commit()
    copied = documents(pair.destination)
    assert copied.keys() == documents(pair.source).keys()
    assert log_in(pair.destination, "bob", "geheim")
    pair.assert_equal()


def test_conflicts_can_be_kept_and_nothing_is_overwritten(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    add_user(destination, "alice", "of the destination")
    add_role(destination, "reader")
    before = documents(pair.destination)
    options = {"usersAndRoles": {"copy": True, "onConflict": "skip"}}
    asked = preflight(daemon, **options)
    assert asked["violations"] == []
    assert any("user alice@app" in each and "role reader@app" in each for each in asked["warnings"])
    daemon.start(**options)
    daemon.commit()
    after = documents(pair.destination)
    assert after == {**documents(pair.source), **before}
    assert log_in(pair.destination, "alice", "of the destination")
    assert daemon.progress()["usersAndRoles"]["kept"] == 2
    assert "2 different, kept as on the destination" in daemon.overview()["summary"]


def test_a_custom_role_must_not_have_the_name_of_a_built_in_role(
    pair: Pair, daemon: Daemon
) -> None:
    """A built-in role of the destination would hide a copied role of that name. Here, both clusters have the role."""
    admin = pair.source.client.admin
    hidden = {"role": "clusterMonitor", "db": "admin", "privileges": [], "roles": []}
    admin.hidden.insert_one({"_id": "admin.clusterMonitor", **hidden})
    collections = {"tempUsersCollection": "admin.none", "tempRolesCollection": "admin.hidden"}
    admin.command({"_mergeAuthzCollections": 1, **collections, "db": "", "drop": False})
    admin.hidden.drop()
    (violation,) = preflight(daemon, **COPY)["violations"]
    assert violation["error"] == "UserOrRoleExists"
    text = "role clusterMonitor@admin (it is a built-in role of the destination"
    assert text in violation["errorDescription"]


def test_only_users_and_roles_of_the_named_databases_are_copied(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    options = {"usersAndRoles": {"copy": True, "databases": ["admin", "typo"]}}
    asked = preflight(daemon, **options)
    (violation,) = asked["violations"]
    assert violation["error"] == "RoleMissing"
    assert "role outer@app (the role wide@admin has it)" in violation["errorDescription"]
    assert any("typo" in each for each in asked["warnings"])
    add_role(pair.destination.client, "reader", privileges=READ)
    add_role(
        pair.destination.client,
        "outer",
        roles=["reader", "dbAdmin"],
        authenticationRestrictions=LOCAL,
    )
    daemon.start(**options)
    daemon.commit()
    assert {*documents(pair.destination)} == {
        "app.reader",
        "app.outer",
        "admin.wide",
        "admin.chief",
    }


def test_without_the_option_nothing_is_copied(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start()
    assert daemon.get("users").json()["error"] == "InvalidState"
    daemon.commit()
    assert documents(pair.destination) == {}
    assert "usersAndRoles" not in daemon.progress()


def test_a_reset_drops_exactly_what_was_created(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    add_role(destination, "reader", privileges=READ)
    add_user(destination, "mine", "x", roles=["reader"])
    daemon.start(**COPY)
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "users and roles copied"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "users and roles copied")
        assert log_in(pair.destination, "alice", "old secret")
        # An operator has changed it, so a reset must not drop it.
        destination.app.command("updateUser", "bob", pwd="changed")
        plan = daemon.post("reset", {"confirm": "cluster1", "dryRun": True}).json()
        assert plan["usersAndRoles"] == [
            *("role outer@app", "role wide@admin", "user CN=machine,O=example@$external"),
            *("user alice@app", "user carol@other", "user chief@admin"),
        ]
        assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    assert {*documents(pair.destination)} == {"app.reader", "app.mine", "app.bob"}
    assert not log_in(pair.destination, "alice", "old secret")
    assert temporary_left(pair.destination) == set()


def test_a_reversed_sync_copies_the_users_created_since(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(**COPY, reversible=True, enableUserWriteBlocking="sourceAndDestination")
    daemon.commit()
    assert documents(pair.destination) == documents(pair.source)
    add_user(pair.destination.client, "new", "on the new cluster")
    daemon.reverse()
    assert set(results(daemon).values()) == {"copy", "equal"}
    pair.destination.client.app.command("updateUser", "bob", pwd="changed")
    daemon.wait_until_committable()
    wait_for(lambda: conflict(daemon.post("commit")), "the commit is refused")
    pair.source.client.app.command("dropUser", "bob")
    daemon.commit()
    assert documents(pair.source) == documents(pair.destination)
    assert log_in(pair.source, "new", "on the new cluster")
    assert log_in(pair.source, "bob", "changed")
    pair.assert_equal()


def test_a_repeated_commit_copies_what_has_changed_since_the_first_attempt(
    pair: Pair, daemon: Daemon
) -> None:
    """Write to the source after users and roles were copied, so that the commit is withdrawn and repeated.

    In between, a user and a role that the first attempt has copied are dropped on the source, and another user gets a
    new password.
    """
    source = pair.source.client
    fill(source)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "users and roles copied"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "users and roles copied")
        source.d.c.insert_one({"_id": "late"})
        source.app.command("dropUser", "bob")
        source.app.command("updateUser", "alice", pwd="new secret")
        source.app.command("dropRole", "reader")
    daemon.wait_for_state("COMMITTED")
    assert documents(pair.destination) == documents(pair.source)
    assert log_in(pair.destination, "alice", "new secret")
    pair.assert_equal()


def test_a_copied_role_that_others_have_received_stays_theirs(pair: Pair, daemon: Daemon) -> None:
    """Give a copied role to a user of the destination, repeat the commit, and reset: the user keeps the role."""
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "source checked"):
        with daemon.held_at(Point.STEP_DONE, "users and roles copied"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "users and roles copied")
            add_user(destination, "mine", "x", roles=["outer"])
            before = documents(pair.destination)
            source.d.c.insert_one({"_id": "late"})
        daemon.wait_until_reached(Point.STEP_DONE, "source checked")
        assert documents(pair.destination) == before
        assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    left = documents(pair.destination)
    assert {*left} == {"app.mine", "app.outer", "app.reader"}
    assert left["app.mine"] == before["app.mine"]


def test_of_several_instances_only_the_coordinator_copies(pair: Pair, fleet: Fleet) -> None:
    fill(pair.source.client)
    fleet.start(**COPY)
    fleet.wait_until_committable()
    fleet.commit()
    assert documents(pair.destination) == documents(pair.source)
    said = ["Users and roles were copied." in each.log for each in fleet.daemons]
    assert said == [True, False]
    pair.assert_equal()
