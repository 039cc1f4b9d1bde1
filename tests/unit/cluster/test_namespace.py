"""Tests which namespaces count as those of users, how namespaces are shown, and which names differ only in case."""

from __future__ import annotations

import pytest

from verifier.cluster.namespace import (
    Namespace,
    differ_in_case,
    is_user_database,
    is_user_namespace,
    some_of,
)


@pytest.mark.parametrize(
    "name, is_users",
    [
        ("shop", True),
        ("Admin", True),
        ("admins", True),
        ("my_mongosync_reserved_", True),
        ("mongosync", True),
        ("admin", False),
        ("config", False),
        ("local", False),
        ("mongosync_reserved_for_internal_use", False),
        ("mongosync_reserved_", False),
        ("mongosync_internal_x", False),
        ("__mdb_internal_x", False),
    ],
)
def test_system_and_reserved_databases_are_no_user_namespaces(name: str, is_users: bool) -> None:
    assert is_user_database(name) is is_users
    assert is_user_namespace(Namespace(name, "c")) is is_users


@pytest.mark.parametrize(
    "name, is_users",
    [
        ("system", True),
        ("systems.x", True),
        ("my.system.x", True),
        ("system.js", False),
        ("system.views", False),
        ("system.buckets.ts", False),
    ],
)
def test_system_collections_are_no_user_namespaces(name: str, is_users: bool) -> None:
    assert is_user_namespace(Namespace("shop", name)) is is_users


def test_no_namespace_is_no_user_namespace() -> None:
    assert not is_user_namespace(Namespace("", ""))


def test_a_namespace_is_shown_with_its_dots() -> None:
    assert str(Namespace("shop", "orders.2024")) == "shop.orders.2024"


def test_namespaces_are_ordered_by_database_first() -> None:
    assert Namespace("a", "z") < Namespace("b", "a") < Namespace("b", "b")


def test_a_message_names_a_few_namespaces() -> None:
    names = {Namespace("d", name) for name in "cab"}
    assert some_of(names) == "d.a, d.b, d.c"
    assert some_of(names | {Namespace("d", name) for name in "fde"}) == (
        "d.a, d.b, d.c, d.d, d.e and others"
    )


@pytest.mark.parametrize(
    "one, other, on_replica_set, on_sharded",
    [
        ("shop", "Shop", True, True),
        ("shop", "shop", False, False),
        ("shop", "shops", False, False),
        ("größe", "GRöße", True, True),
        ("ä", "Ä", False, True),
        ("ä", "a", False, False),
        ("k", "\u212a", False, True),
        ("σ", "ς", False, True),
        ("groß", "gro\u1e9e", False, True),
    ],
)
def test_names_of_databases_can_differ_in_case(
    one: str, other: str, on_replica_set: bool, on_sharded: bool
) -> None:
    """Test a table of names, with the answers of servers of MongoDB 6.0."""
    assert differ_in_case(one, other, sharded=False) is on_replica_set
    assert differ_in_case(one, other, sharded=True) is on_sharded
