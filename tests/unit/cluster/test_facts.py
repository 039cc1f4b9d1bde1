"""Facts about a cluster are derived from the replies of its servers."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from verifier.cluster.facts import (
    ClusterFacts,
    Topology,
    _address,
    _is_cluster,
    _is_every_collection,
    _is_of_admin,
    _is_of_config,
    _privileges,
    _privileges_by_collection,
    _replica_set_id,
    _topology,
)


@pytest.mark.parametrize(
    "hello, topology",
    [
        ({"msg": "isdbgrid"}, Topology.SHARDED),
        ({"setName": "rs0", "primary": "h:1"}, Topology.REPLICA_SET),
        ({"isWritablePrimary": True}, Topology.STANDALONE),
    ],
)
def test_the_topology_shows_in_hello(hello: dict[str, Any], topology: Topology) -> None:
    assert _topology(hello) is topology


def test_the_address_is_that_of_the_primary() -> None:
    with MongoClient[dict[str, Any]]("mongodb://h:1", connect=False) as client:
        assert _address(client, {"primary": "p:27017"}) == "p:27017"


@pytest.mark.parametrize(
    "config, expected",
    [
        ({"_id": "rs0", "settings": {"replicaSetId": ObjectId("0" * 24)}}, "0" * 24),
        ({"_id": "rs0", "settings": {"chainingAllowed": True}}, None),
        ({"_id": "rs0"}, None),
    ],
)
def test_an_old_replica_set_has_no_id(config: dict[str, Any], expected: str | None) -> None:
    assert _replica_set_id(config) == expected


def status(users: list[str], privileges: list[dict[str, Any]]) -> dict[str, Any]:
    info = {"authenticatedUsers": users, "authenticatedUserPrivileges": privileges}
    return {"authInfo": info}


def test_privileges_are_none_without_access_control() -> None:
    assert _privileges(status([], []), _is_cluster) is None


def test_privileges_are_the_actions_on_the_cluster_or_on_every_collection() -> None:
    granted = [
        {"resource": {"cluster": True}, "actions": ["a", "b"]},
        {"resource": {"anyResource": True}, "actions": ["c"]},
        {"resource": {"db": "", "collection": ""}, "actions": ["d"]},
        {"resource": {"cluster": False}, "actions": ["e"]},
    ]
    assert _privileges(status(["u"], granted), _is_cluster) == frozenset("abc")
    assert _privileges(status(["u"], granted), _is_every_collection) == frozenset("cd")


@pytest.mark.parametrize(
    "resource, held",
    [
        ({"anyResource": True}, ""),
        ({"db": "config", "collection": ""}, ""),
        ({"db": "config", "collection": "shards"}, "shards"),
        ({"db": "", "collection": "shards"}, "shards"),
        ({"db": "", "collection": ""}, None),
        ({"db": "d", "collection": "shards"}, None),
        ({"db": "config", "system_buckets": ""}, None),
        ({"cluster": True}, None),
    ],
)
def test_privileges_on_the_database_config(resource: dict[str, Any], held: str | None) -> None:
    held_by = status(["u"], [{"resource": resource, "actions": ["find"]}])
    found = _privileges_by_collection(held_by, _is_of_config)
    assert found == (frozenset() if held is None else frozenset({("find", held)}))
    facts = ClusterFacts(
        *(Topology.SHARDED, "h:1", (6, 0, 5), "id", True, frozenset()), config_privileges=found
    )
    assert facts.lacks_on_config("shards", "find") == (
        ["find on config.shards"] if held is None else []
    )
    assert facts.lacks_on_config("tags", "find", "update") == (
        ["update on config.tags"]
        if held == ""
        else ["find on config.tags", "update on config.tags"]
    )


def test_no_privilege_on_config_is_missing_without_access_control() -> None:
    assert _privileges_by_collection(status([], []), _is_of_config) is None
    facts = ClusterFacts(Topology.SHARDED, "h:1", (6, 0, 5), "id", False, None)
    assert facts.lacks_on_config("tags", "find") == []
    assert facts.lacks_on_admin("system.users", "find") == []


@pytest.mark.parametrize(
    "resource, held",
    [
        ({"db": "admin", "collection": "system.users"}, True),
        ({"db": "", "collection": "system.users"}, True),
        ({"anyResource": True}, True),
        ({"db": "admin", "collection": ""}, False),
        ({"db": "", "collection": ""}, False),
        ({"db": "admin", "collection": "system.roles"}, False),
        ({"db": "other", "collection": "system.users"}, False),
        ({"cluster": True}, False),
    ],
)
def test_privileges_on_system_collections_of_the_database_admin(
    resource: dict[str, Any], held: bool
) -> None:
    held_by = status(["u"], [{"resource": resource, "actions": ["find"]}])
    found = _privileges_by_collection(held_by, _is_of_admin)
    facts = ClusterFacts(
        *(Topology.SHARDED, "h:1", (6, 0, 5), "id", True, frozenset()), admin_privileges=found
    )
    lacked = [] if held else ["find on admin.system.users"]
    assert facts.lacks_on_admin("system.users", "find") == lacked


def test_a_user_may_have_no_privileges() -> None:
    assert _privileges({"authInfo": {"authenticatedUsers": ["u"]}}, _is_cluster) == frozenset()


@pytest.mark.parametrize(
    "held, lacked",
    [(None, []), (frozenset("abc"), []), (frozenset("b"), ["a", "c"]), (frozenset(), list("abc"))],
)
def test_missing_actions_are_listed_in_order(
    held: frozenset[str] | None, lacked: list[str]
) -> None:
    facts = ClusterFacts(Topology.REPLICA_SET, "h:1", (6, 0, 5), "id", held is not None, held)
    assert facts.lacks("a", "b", "c") == lacked
