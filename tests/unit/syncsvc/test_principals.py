"""Tests which users and roles are copied, kept, refused or removed."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from syncsvc.errors import INVALID_STATE
from syncsvc.options import OnConflict, UsersAndRoles
from syncsvc.principals.comparison import (
    Comparison,
    Identity,
    Kind,
    Listing,
    Outcome,
    Principal,
    PrincipalCounts,
    compare,
    described,
    in_order_of_removal,
    outdated,
    removable,
    violations,
    warnings,
)
from syncsvc.running.principal_check import not_requested

ALL = UsersAndRoles()
SKIP = UsersAndRoles(on_conflict=OnConflict.SKIP)
CREDENTIALS = {
    "SCRAM-SHA-1": {"salt": "a", "storedKey": "b"},
    "SCRAM-SHA-256": {"salt": "c", "storedKey": "d"},
}


def user(name: str, *roles: str, database: str = "app", **fields: Any) -> Principal:
    document = {"user": name, "db": database, "credentials": CREDENTIALS, "roles": refs(roles)}
    return Principal(Kind.USER, encoded(name, database, {**document, **fields}))


def role(name: str, *roles: str, database: str = "app", **fields: Any) -> Principal:
    document = {"role": name, "db": database, "privileges": [], "roles": refs(roles)}
    return Principal(Kind.ROLE, encoded(name, database, {**document, **fields}))


def refs(roles: tuple[str, ...]) -> list[dict[str, str]]:
    """Return references to roles. Each role is given as `name`, which means the database app, or as `name@database`."""
    parted = (each.partition("@") for each in roles)
    return [{"role": name, "db": database or "app"} for name, _, database in parted]


def encoded(name: str, database: str, document: dict[str, Any]) -> bytes:
    return bson.encode({"_id": f"{database}.{name}", **document})


def judged(
    source: list[Principal],
    destination: list[Principal] = [],
    options: UsersAndRoles = ALL,
    own: tuple[str, ...] = (),
) -> dict[str, str]:
    found = compared(source, destination, options, own)
    return {str(each.identity): each.outcome.value for each in found.findings}


def compared(
    source: list[Principal],
    destination: list[Principal] = [],
    options: UsersAndRoles = ALL,
    own: tuple[str, ...] = (),
) -> Comparison:
    of_source = frozenset(Identity("user", "admin", name) for name in own[:1])
    of_destination = frozenset(Identity("user", "admin", name) for name in own[1:])
    return compare(
        options,
        Listing(tuple(source), own=of_source),
        Listing(tuple(destination), own=of_destination),
    )


PRIVILEGES = [
    {"resource": {"db": "app", "collection": "c"}, "actions": ["find", "insert"]},
    {"resource": {"cluster": True}, "actions": ["listDatabases"]},
]
REORDERED = [
    {"resource": {"cluster": True}, "actions": ["listDatabases"]},
    {"resource": {"collection": "c", "db": "app"}, "actions": ["insert", "find"]},
]
RESTRICTIONS = [
    {"clientSource": ["127.0.0.1", "::1"], "serverAddress": ["10.0.0.1"]},
    {"clientSource": ["10.0.0.0/8"]},
]
REORDERED_RESTRICTIONS = [
    {"clientSource": ["10.0.0.0/8"]},
    {"clientSource": ["::1", "127.0.0.1"], "serverAddress": ["10.0.0.1"]},
]


@pytest.mark.parametrize(
    "one, other",
    [
        (user("a", userId=1), user("a", userId=2)),
        (user("a", "x", "y"), user("a", "y", "x")),
        (user("a", credentials=dict(reversed(CREDENTIALS.items()))), user("a")),
        (user("a", authenticationRestrictions=[]), user("a")),
        (
            user("a", authenticationRestrictions=RESTRICTIONS),
            user("a", authenticationRestrictions=REORDERED_RESTRICTIONS),
        ),
        (role("a", privileges=PRIVILEGES), role("a", privileges=REORDERED)),
        (user("a", customData={"$x": 1}), user("a", customData={"$x": 1})),
    ],
)
def test_equal_principals(one: Principal, other: Principal) -> None:
    assert one.fingerprint == other.fingerprint
    assert judged([one], [other]) == {str(one.identity): "equal"}


@pytest.mark.parametrize(
    "one, other",
    [
        (user("a", credentials={}), user("a")),
        (user("a", "x"), user("a")),
        (user("a", "x"), user("a", "x@other")),
        (user("a", customData={"n": 1}), user("a", customData={"n": bson.Int64(1)})),
        (user("a", customData={"a": 1, "b": 1}), user("a", customData={"b": 1, "a": 1})),
        (user("a", authenticationRestrictions=[{"clientSource": ["::1"]}]), user("a")),
        (
            user("a", authenticationRestrictions=[{"clientSource": ["::1"]}]),
            user("a", authenticationRestrictions=[{"serverAddress": ["::1"]}]),
        ),
        (user("a", unknown=1), user("a")),
        (role("a", privileges=PRIVILEGES), role("a", privileges=PRIVILEGES[:1])),
    ],
)
def test_different_principals_conflict_or_are_kept(one: Principal, other: Principal) -> None:
    name = str(one.identity)
    assert compared([one], [other]).copied == ()
    assert judged([one], [other])[name] == "conflict"
    assert judged([one], [other], SKIP)[name] == "kept"


def test_a_user_and_a_role_may_have_one_name() -> None:
    found = judged([user("a"), role("a")], [role("a")])
    assert found == {"user a@app": "copy", "role a@app": "equal"}


def test_the_daemons_own_users_and_the_internal_user_are_never_copied() -> None:
    principals = [
        user("of source", database="admin"),
        user("of destination", database="admin"),
        user("__system", database="local"),
        user("of source"),
        role("of source", database="admin"),
    ]
    assert judged(principals, own=("of source", "of destination")) == {
        "user of source@admin": "own",
        "user of destination@admin": "own",
        "user __system@local": "own",
        "user of source@app": "copy",
        "role of source@admin": "copy",
    }


def test_roles_of_excluded_databases_must_exist_and_be_equal() -> None:
    """A copied user may have or inherit roles of databases that are not copied.

    These roles must exist on the destination with the same definitions; otherwise, the start is refused.
    """
    source = [user("a", "r@one"), role("r", "s@two", database="one"), role("s", database="two")]
    options = UsersAndRoles(("app",))
    assert judged(source, [], options) == {
        "user a@app": "copy",
        "role r@one": "missing",
        "role s@two": "missing",
    }
    different = role("s", database="two", privileges=PRIVILEGES)
    assert judged(source, [source[1], different], options)["role s@two"] == "conflict"
    found = compared(source, source[1:], options)
    assert found.copied == (source[0],)
    assert not [*violations(found)]


def test_the_roles_of_a_kept_principal_need_not_exist_on_the_destination() -> None:
    """If the destination's definition of a user or role is kept, the source's definition is not used.

    The roles that only the source's definition names need not exist on the destination.
    """
    excluded = [role("r", "s@two", database="one"), role("s", database="two")]
    source = [user("a", "lost@two"), user("b", "r@one"), role("lost", database="two"), *excluded]
    options = UsersAndRoles(("app",), OnConflict.SKIP)
    assert judged(source, [user("a"), role("r", database="one")], options) == {
        "user a@app": "kept",
        "user b@app": "copy",
        "role r@one": "kept",
    }


def test_a_role_that_only_the_destination_stores_is_not_the_built_in_role_of_the_source() -> None:
    source = [user("a", "read", "new")]
    assert judged(source) == {"user a@app": "copy"}
    found = compared(source, [role("new")])
    assert [str(each.identity) for each in found.findings] == ["role new@app", "user a@app"]
    ((kind, text),) = violations(found)
    assert kind.name == "UserOrRoleExists" and "role new@app (the user a@app names it)" in text


def test_privileges_outside_the_filter_are_named() -> None:
    """The privileges of granted roles must count, too: a built-in role of a database applies to that database."""
    on_hr = [{"resource": {"db": "hr", "collection": ""}, "actions": ["find"]}]
    found = compared(
        [
            *(user("a", "read@hr", "read@app"), user("b", "read@app", "root@admin")),
            *(role("own", privileges=on_hr), role("granted", "readWrite@hr"), role("none")),
        ],
        [],
    )
    (text,) = warnings(found, {"app"})
    assert text.count("(on hr)") == 3
    assert all(f"{name}@app (on hr)" in text for name in ("user a", "role own", "role granted"))
    assert [*warnings(found, {"app", "hr"})] == [] == [*warnings(found, None)]


def test_a_custom_role_is_not_copied_over_a_built_in_role_of_the_destination() -> None:
    """A custom role must not be copied if a newer destination has a built-in role of the same name.

    The built-in role would take effect instead of the copy.
    """
    built_in = frozenset({Identity("role", "admin", "new"), Identity("role", "", "newer")})
    source = Listing(
        (
            *(role("new", database="admin"), role("new"), role("newer")),
            *(role("newer", database="admin"), user("u", "newer"), user("newer")),
        )
    )
    found = compare(ALL, source, Listing(built_in=built_in))
    assert [str(each.identity) for each in found.having(Outcome.CONFLICT)] == [
        *("role new@admin", "role newer@app"),
    ]
    ((kind, text),) = violations(found)
    assert kind.name == "UserOrRoleExists"
    assert "role newer@app (the destination has a built-in role of this name: " in text
    kept = compare(SKIP, source, Listing(built_in=built_in))
    assert kept.counts == PrincipalCounts(users=2, roles=2, kept=2)


def test_all_violations_are_named_and_a_long_list_is_cut() -> None:
    many = [user(f"u{number:02}", "r@one") for number in range(15)]
    others = [user(f"u{number:02}") for number in range(15)]
    source = Listing((*many, role("r", database="one")), auth_schema=3)
    found = compare(UsersAndRoles(("app",)), source, Listing(tuple(others)))
    texts = {kind.name: text for kind, text in violations(found)}
    assert {*texts} == {"AuthSchemaUnsupported", "UserOrRoleExists", "RoleMissing"}
    assert "of the source has version 3" in texts["AuthSchemaUnsupported"]
    assert "u09@app" in texts["UserOrRoleExists"] and "and 5 more" in texts["UserOrRoleExists"]
    assert "u10" not in texts["UserOrRoleExists"]


def test_warnings_name_what_an_operator_should_know() -> None:
    source = [user("a"), user("own", database="admin"), role("r", privileges=PRIVILEGES)]
    options = UsersAndRoles(("app", "admin", "typo"), OnConflict.SKIP)
    found = compared(source, [user("a", "read")], options, own=("own",))
    kept, own, typo = warnings(found, None)
    assert "user a@app" in kept and "user own@admin" in own and "typo" in typo
    assert len([*warnings(found, {"app"})]) == 3
    *_, outside = warnings(found, {"else"})
    assert "role r@app (on app)" in outside


def test_counts() -> None:
    source = [user("a"), user("b"), role("r"), role("s"), user("kept")]
    counts = compared(source, [role("s"), user("kept", "read")], SKIP).counts
    assert counts == PrincipalCounts(users=2, roles=1, equal=1, kept=1)
    assert (
        described(counts)
        == "copied 2 users and 1 role; 1 equal; 1 different on the destination, left unchanged there"
    )


def test_principals_are_removed_before_the_roles_that_they_have() -> None:
    principals = [role("low"), role("middle", "low"), role("high", "middle"), user("u", "low")]
    names = [each.identity.name for each in in_order_of_removal(principals)]
    assert names.index("high") < names.index("middle") < names.index("low")
    assert names.index("u") < names.index("low")


def test_a_created_role_that_other_principals_have_is_not_removed() -> None:
    created = [user("u", "low"), role("low"), role("middle", "low"), role("high", "middle")]
    names = [each.identity.name for each in removable(created, Listing((*created, user("mine"))))]
    assert names == ["u", "low", "middle", "high"]
    theirs = user("mine", "middle")
    names = [each.identity.name for each in removable(created, Listing((*created, theirs)))]
    assert names == ["u", "high"]


def test_a_created_user_as_which_the_daemon_logs_in_is_not_removed() -> None:
    created = [user("own", "high"), role("high", "low"), role("low"), role("other"), user("u")]
    own = frozenset({created[0].identity})
    names = [each.identity.name for each in removable(created, Listing((*created,), own=own))]
    assert names == ["other", "u"]


def test_created_principals_are_outdated_if_they_or_one_of_their_roles_differ() -> None:
    low, middle, high = role("low"), role("middle", "low"), role("high", "middle")
    created = [low, middle, high, user("u", "high"), user("v"), user("w"), user("x", "read")]
    assert outdated(created, created) == []
    wanted = [role("low", "read"), *created[1:4], user("v", customData={}), created[6]]
    names = [each.identity.name for each in outdated(created, wanted)]
    assert names == ["low", "middle", "high", "u", "v", "w"]


def test_no_text_of_a_principal_contains_credentials() -> None:
    principal = user("a")
    shown = repr(principal) + repr(compared([principal])) + repr(Listing((principal,)))
    assert "storedKey" not in shown and "salt" not in shown
    assert principal.fingerprint not in shown


def test_without_the_start_option_no_other_state_is_suggested() -> None:
    error = not_requested()
    assert error.kind == INVALID_STATE
    assert INVALID_STATE.remedy not in str(error)
    assert "POST /api/v1/reset" in str(error)
