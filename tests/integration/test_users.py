"""Tests the copy of users and custom roles, at the commit and on request.

The copy never overwrites users and roles that others have created or changed on the destination: the copy is refused,
or these users and roles are kept.

`make test` leaves out rare changes during the copy, and tests that repeat a rule with another case.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from syncsvc.engine.principal_copy import TEMPORARY
from syncsvc.engine.run.points import Point
from syncsvc.principals.comparison import Kind
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
    record_ids,
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
    """Return the result that a commit would have now for each user and role, by name."""
    return {f"{each['name']}@{each['database']}": each["result"] for each in daemon.users()}


def to_copy(daemon: Daemon) -> set[str]:
    return {name for name, result in results(daemon).items() if result == "copy"}


def preflight(daemon: Daemon, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = daemon.post("preflight", daemon.start_body(**options)).json()
    return answer


@pytest.mark.in_turns
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
    # Change the users of the source during the sync.
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
    # This role is equal on both clusters, so it is no conflict.
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
    assert "2 different on the destination, left unchanged there" in daemon.overview()["summary"]


def test_a_custom_role_must_not_have_the_name_of_a_built_in_role(
    pair: Pair, daemon: Daemon
) -> None:
    """Request a copy of a custom role that has the name of a built-in role: a preflight must report an error.

    The destination would use its built-in role, and not the copy. In this test, the source has both roles, too.
    """
    admin = pair.source.client.admin
    hidden = {"role": "clusterMonitor", "db": "admin", "privileges": [], "roles": []}
    admin.hidden.insert_one({"_id": "admin.clusterMonitor", **hidden})
    collections = {"tempUsersCollection": "admin.none", "tempRolesCollection": "admin.hidden"}
    admin.command({"_mergeAuthzCollections": 1, **collections, "db": "", "drop": False})
    admin.hidden.drop()
    (violation,) = preflight(daemon, **COPY)["violations"]
    assert violation["error"] == "UserOrRoleExists"
    text = "role clusterMonitor@admin (the destination has a built-in role of this name"
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
    for answer in (daemon.get("users"), daemon.post("users")):
        assert answer.json()["error"] == "InvalidState"
        assert "usersAndRoles.copy true" in answer.json()["errorDescription"]
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
        # An operator changes this user, so a reset must not drop it.
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


@pytest.mark.in_turns
@across(REPLICA_SETS, TO_SHARDED, SHARDED)
def test_users_are_copied_on_request_and_again_by_the_commit(pair: Pair, daemon: Daemon) -> None:
    """Copy on request, log in on the blocked destination, and change users and roles on the source before the commit.

    The commit must replace only those that have changed, and those that have a changed role.
    """
    source, destination = pair.source, pair.destination
    fill(source.client)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    copied = daemon.copy_users()
    assert copied == {"copied": True, "users": 5, "roles": 3, "equal": 0, "kept": 0}
    assert documents(destination) == documents(source)
    assert temporary_left(destination) == set()
    assert log_in(destination, "alice", "old secret")
    assert set(results(daemon).values()) == {"equal"}
    assert daemon.progress()["state"] == "RUNNING" and not daemon.progress()["canWrite"]

    assert daemon.copy_users() == copied

    before = record_ids(destination)
    source.client.app.command("updateUser", "alice", pwd="new secret")
    source.client.app.command("dropUser", "bob")
    source.client.app.command("updateRole", "outer", roles=["reader"])
    add_user(source.client, "late", "just in time")
    changed = {"alice@app", "late@app", "outer@app", "wide@admin", "chief@admin"}
    # Wait, because a majority read can be older than the last acknowledged write.
    wait_for(lambda: to_copy(daemon) == changed, "the changes are listed")
    assert daemon.copy_users()["users"] == 5
    assert documents(destination) == documents(source)
    source.client.app.command("dropUser", "late")
    add_user(source.client, "late", "another one")
    daemon.commit()
    assert documents(destination) == documents(source)
    assert temporary_left(destination) == set()
    assert log_in(destination, "alice", "new secret") and not log_in(destination, "bob", "geheim")
    assert log_in(destination, "late", "another one")
    after = record_ids(destination)
    kept = {name for name in before if before[name] == after.get(name)}
    assert kept == {"other.carol", "$external.CN=machine,O=example"}
    said = [each["text"] for each in daemon.report()["timeline"]]
    # The report lists three copies on request and the copy of the commit, all with the same numbers.
    assert said.count("copy users and roles") == 3
    assert said.count("copied 5 users and 3 roles; 0 equal") == 4
    pair.assert_equal()


@pytest.mark.full
def test_a_copy_on_request_never_overwrites(pair: Pair, daemon: Daemon) -> None:
    """Change a copied user on the destination: another copy and a commit must be refused, and change nothing."""
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    add_user(destination, "bob", "of the destination")
    refused = daemon.post("users")
    assert conflict(refused) and "user bob@app" in refused.json()["errorDescription"]
    assert {*documents(pair.destination)} == {"app.bob"}
    destination.app.command("dropUser", "bob")
    daemon.copy_users()
    destination.app.command("updateUser", "bob", pwd="changed")
    source.app.command("updateUser", "alice", pwd="new secret")
    before = documents(pair.destination)
    assert conflict(daemon.post("users"))
    wait_for(lambda: conflict(daemon.post("commit")), "the commit is refused")
    assert documents(pair.destination) == before
    destination.app.command("dropUser", "bob")
    daemon.commit()
    assert documents(pair.destination) == documents(pair.source)
    pair.assert_equal()


def test_a_copy_on_request_keeps_other_definitions_with_skip(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(usersAndRoles={"copy": True, "onConflict": "skip"})
    daemon.wait_until_committable()
    daemon.copy_users()
    pair.destination.client.app.command("updateUser", "bob", pwd="changed")
    changed = documents(pair.destination)["app.bob"]
    assert daemon.copy_users()["kept"] == 1
    daemon.commit()
    assert documents(pair.destination) == {**documents(pair.source), "app.bob": changed}


@pytest.mark.full
def test_a_copy_leaves_the_temporary_collections_of_other_syncs(pair: Pair, daemon: Daemon) -> None:
    """Copy users, and reset the sync, while another sync has a temporary collection: that collection must stay."""
    foreign = pair.destination.client.admin[f"{TEMPORARY[Kind.USER]}{'0' * 32}"]
    foreign.insert_one({"_id": "app.theirs"})
    try:
        fill(pair.source.client)
        daemon.start(**COPY)
        daemon.wait_until_committable()
        daemon.copy_users()
        assert documents(pair.destination) == documents(pair.source)
        assert daemon.post("reset", {"confirm": "cluster1"}).ok
        daemon.wait_for_state("IDLE")
        assert temporary_left(pair.destination) == {foreign.name}
    finally:
        foreign.drop()


def test_a_failed_copy_on_request_is_in_the_report(pair: Pair, daemon: Daemon) -> None:
    """Change a user on the destination during the second copy, so that the copy fails.

    The report must list the request, but no copied users and roles.
    """
    fill(pair.source.client)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    daemon.copy_users()
    pair.source.client.app.command("updateUser", "bob", pwd="new")
    with ThreadPoolExecutor() as pool, daemon.held_at(Point.PRINCIPALS_ADDED, number=2):
        refused = pool.submit(refused_copy, daemon)
        daemon.wait_until_reached(Point.PRINCIPALS_ADDED, number=2)
        pair.destination.client.app.command("updateUser", "bob", pwd="changed")
    assert refused.result().startswith("UserOrRoleNotCopied")
    shown = daemon.progress()["usersAndRoles"]
    assert shown == {"copied": False, "users": 0, "roles": 0, "equal": 0, "kept": 0}
    said = [each["text"] for each in daemon.report()["timeline"]]
    assert said.count("copy users and roles") == 2
    assert said.count("copied 5 users and 3 roles; 0 equal") == 1


def test_a_user_changed_during_a_reset_keeps_its_roles(pair: Pair, daemon: Daemon) -> None:
    """Change a user after the reset has listed the users to drop: the user must stay, and so must its roles."""
    fill(pair.source.client)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    daemon.copy_users()
    with daemon.held_at(Point.PRINCIPAL_DROPPED):
        assert daemon.post("reset", {"confirm": "cluster1"}).ok
        daemon.wait_until_reached(Point.PRINCIPAL_DROPPED)
        name = "bob" if "app.bob" in documents(pair.destination) else "CN=machine,O=example"
        database = pair.destination.client["app" if name == "bob" else "$external"]
        database.command("updateUser", name, customData={"changed": True})
        (changed,) = database.command("usersInfo", name)["users"]
    daemon.wait_for_state("IDLE")
    assert {*documents(pair.destination)} == {changed["_id"], "app.reader"}
    assert database.command("usersInfo", name)["users"] == [changed]


def refused_copy(daemon: Daemon, **body: Any) -> str:
    """Request a copy of users and roles with this body; fail unless it is refused.

    Return the name of the error and its description, separated by a colon.
    """
    answer = daemon.post("users", body)
    assert not answer.ok
    return f"{answer.json()['error']}: {answer.json()['errorDescription']}"


def test_a_copy_on_request_is_refused_in_other_states(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    needed = "InvalidState: a copy of users and roles needs state RUNNING; the state is "
    assert refused_copy(daemon).startswith(f"{needed}IDLE")
    assert refused_copy(daemon, now=True).startswith("InvalidRequest: now:")
    with daemon.held_at(Point.BLOCK_SAVED, "cluster1"):
        daemon.start(**COPY)
        daemon.wait_until_reached(Point.BLOCK_SAVED, "cluster1")
        assert "still being initialized" in refused_copy(daemon)
    daemon.wait_until_committable()
    daemon.pause()
    assert refused_copy(daemon).startswith(f"{needed}PAUSED. First resume the sync")
    daemon.resume()
    with daemon.held_at(Point.STEP_DONE, "definitions prepared"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "definitions prepared")
        assert refused_copy(daemon).startswith(f"{needed}COMMITTING. Wait")
    assert documents(pair.destination) == {}
    daemon.wait_for_state("COMMITTED")
    assert refused_copy(daemon).startswith(f"{needed}COMMITTED")


@pytest.mark.full
def test_a_reset_drops_what_was_copied_on_request(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    daemon.copy_users()
    # The second copy leaves most users unchanged. The names of all copied users must stay saved nevertheless.
    pair.source.client.app.command("updateUser", "bob", pwd="new")
    daemon.copy_users()
    daemon.kill()
    daemon.run()
    daemon.wait_until_committable()
    assert (
        len(daemon.post("reset", {"confirm": "cluster1", "dryRun": True}).json()["usersAndRoles"])
        == 8
    )
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    assert documents(pair.destination) == {}


@pytest.mark.full
def test_a_user_changed_on_the_destination_during_the_copy_fails_the_commit(
    pair: Pair, daemon: Daemon
) -> None:
    destination = pair.destination.client
    fill(pair.source.client)
    daemon.start(**COPY)
    daemon.wait_until_committable()
    with daemon.held_at(Point.PRINCIPALS_ADDED):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.PRINCIPALS_ADDED)
        destination.app.command("updateUser", "bob", pwd="changed")
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "UserOrRoleNotCopied" and "user bob@app" in failed["errorDescription"]
    assert not failed["canWrite"] and temporary_left(pair.destination) == set()
    daemon.resume()
    # The commit must not overwrite the change.
    assert results(daemon)["bob@app"] == "conflict"
    destination.app.command("dropUser", "bob")
    daemon.commit()
    assert documents(pair.destination) == documents(pair.source)
    assert log_in(pair.destination, "bob", "geheim")
    pair.assert_equal()


@pytest.mark.full
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
    assert daemon.copy_users()["users"] == 2
    daemon.commit()
    assert documents(pair.source) == documents(pair.destination)
    assert log_in(pair.source, "new", "on the new cluster")
    assert log_in(pair.source, "bob", "changed")
    pair.assert_equal()


@pytest.mark.full
def test_a_repeated_commit_copies_what_has_changed_since_the_first_attempt(
    pair: Pair, daemon: Daemon
) -> None:
    """Write to the source after users and roles were copied, so that the commit is withdrawn and repeated.

    Before the second attempt, the source drops a copied user and a copied role, and changes the password of another
    user. The destination must get these changes, too.
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


@pytest.mark.full
def test_a_copied_role_that_others_have_received_stays_theirs(pair: Pair, daemon: Daemon) -> None:
    """Grant a copied role to a user of the destination, repeat the commit, and reset: the user must keep the role."""
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


@pytest.mark.full
def test_of_several_instances_only_the_coordinator_copies(pair: Pair, fleet: Fleet) -> None:
    fill(pair.source.client)
    fleet.start(**COPY)
    fleet.wait_until_committable()
    assert f"must be sent to the coordinator {fleet.names[0]}" in refused_copy(fleet.follower)
    assert documents(pair.destination) == {}
    fleet.coordinator.copy_users()
    add_user(pair.source.client, "late", "just in time")
    fleet.commit()
    assert documents(pair.destination) == documents(pair.source)
    said = ["Users and roles were copied." in each.log for each in fleet.daemons]
    assert said == [True, False]
    pair.assert_equal()
