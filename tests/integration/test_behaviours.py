"""Runs every `Behaviour` (a kind of change on the source) in every phase of a sync. Many of them share one sync.

`make test` runs each behaviour in one phase between replica sets, and many of them with a sharded cluster.
`pytest --full -k <name of a behaviour>` runs a single behaviour in every phase.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox.replica_set import Client
from tests.support.behaviours import ALL, UPDATES, transactions
from tests.support.behaviours.behaviour import Behaviour
from tests.support.daemon import Daemon
from tests.support.pair import (
    FROM_SHARDED,
    SHARDED,
    TO_SHARDED,
    Pair,
    Topology,
    assert_none,
    started_pair,
)
from tests.support.phases import When, writes_in
from tests.support.selection import full
from tests.support.shapes import Kind


@dataclass(frozen=True)
class Round:
    """The properties of one sync.

    The source is changed in the phase `when`. If `raw_diffs`, change events contain the diffs of the oplog. `shape`
    says how the destination differs from the source, for example by new names.
    """

    when: When
    raw_diffs: bool = True
    topology: Topology = Topology.REPLICA_SETS
    shape: Kind = Kind.PLAIN

    def __str__(self) -> str:
        if self.shape is not Kind.PLAIN:
            return f"{self.when.name}-{self.shape.name}"
        if self.topology is not Topology.REPLICA_SETS:
            return f"{self.when.name}-{self.topology.name}"
        return self.when.name if self.raw_diffs else f"{self.when.name}-without-raw-diffs"


@dataclass(frozen=True)
class Outcome:
    """The result of a sync.

    `failure` is empty if the sync was committed. `differences` maps databases to the differences between the clusters.
    """

    failure: str
    differences: Mapping[str, Sequence[str]]

    def assert_equal(self, behaviour: Behaviour) -> None:
        assert not self.failure
        owned = [found for name, found in self.differences.items() if behaviour.owns(name)]
        assert_none([*chain.from_iterable(owned)])


def _chosen(request: pytest.FixtureRequest) -> list[Behaviour]:
    """Return the behaviours of all tests that pytest has selected for the sync `request.param`."""
    rows = [getattr(item, "callspec").params for item in request.session.items if _is_ours(item)]
    return [row["behaviour"] for row in rows if row.get("outcome") == request.param]


def _is_ours(item: pytest.Item) -> bool:
    return item.path == Path(__file__)


def _do(calls: list[Callable[[], object]]) -> None:
    """Run the calls in four threads, because most of them only wait for a server. Raises the first error."""
    with ThreadPoolExecutor(max_workers=4) as executor:
        for future in [executor.submit(call) for call in calls]:
            future.result()


# Updates of collections that are capped or have a collation.
_ODD = {"keys_that_a_collation_makes_one", "updates_of_a_capped_and_collated_collection"}
# Behaviours whose collection can be sharded by `_id`: no other unique index, no collation, not capped.
_SHARDED = [each.name for each in UPDATES if each.name not in _ODD]
_SHARDED += ["drop_and_create_again", "out_again_and_again"]
_COLLECTIONS = {
    "keys_of_every_type": ("updated", "replaced", "deleted", "made again"),
}
# Unsupported by routers or by our stand-in router: transactions, mapReduce, cloneCollectionAsCapped.
_NOT_ON_ROUTERS = {
    *(each.name for each in vars(transactions).values() if isinstance(each, Behaviour)),
    *("create_in_a_transaction", "create_and_drop_between_transactions"),
    *("map_and_reduce", "clone_as_capped"),
}


# In a sync to a sharded cluster, no collection can be renamed to another database.
_ACROSS_DATABASES = {
    *("rename_across_databases", "rename_across_databases_over_another"),
    *("rename_odd_collections_across_databases", "rename_across_databases_and_back"),
    "rename_out_of_a_dropped_database",
}


def _some(offset: int, unfit: Container[str]) -> list[Any]:
    """Return all behaviours whose collections are sharded and, to save time, half of the other behaviours.

    Behaviours named in `unfit` are left out. `offset`, 0 or 1, selects the half. `make test` runs a quarter of the
    sharded behaviours and an eighth of the returned others; `--full` runs all of them.
    """
    fit = [(n, each) for n, each in enumerate(ALL) if each.name not in unfit]
    sharded = [(n, each) for n, each in fit if each.name in _SHARDED]
    others = [(n, each) for n, each in fit if each.name not in _SHARDED and n % 2 == offset]
    steps = [*((4, *row) for row in sharded), *((16, *row) for row in others)]
    return [each if n % step == offset else full(each) for step, n, each in steps]


def _shard(pair: Pair, behaviour: Behaviour) -> None:
    if pair.source.shards:
        # Collections can only be renamed to a database on the same shard.
        primary: dict[str, Any] = {"primaryShard": pair.source.shards[0].name}
        for name in (behaviour.name, f"{behaviour.name}_other"):
            pair.source.client.admin.command("enableSharding", name, **primary)
    if behaviour.name in _SHARDED:
        for name in _COLLECTIONS.get(behaviour.name, ("c",)):
            pair.shard(f"{behaviour.name}.{name}")


def _databases(behaviours: list[Behaviour]) -> list[str]:
    return [name for each in behaviours for name in (each.name, f"{each.name}_other")]


def _plain_collections(client: Client, behaviours: list[Behaviour]) -> list[str]:
    """Return the namespace of the collection `c` of each behaviour, if this collection exists and is not capped."""
    found = []
    for each in behaviours:
        rows = client[each.name].list_collections(filter={"name": "c", "type": "collection"})
        found += [f"{each.name}.c" for row in rows if not row["options"].get("capped")]
    return found


def _sync(pair: Pair, daemon: Daemon, round_: Round, behaviours: list[Behaviour]) -> Outcome:
    source = pair.source.client
    # Insert a document to copy, because the databases of all behaviours may be empty at first.
    source.anchor.c.insert_one({"_id": 1})
    _do([partial(_shard, pair, each) for each in behaviours])
    _do([partial(each.fill, source[each.name]) for each in behaviours])
    if not round_.raw_diffs:
        daemon.force_classic_updates()
    shape = round_.shape.of(_databases(behaviours), _plain_collections(source, behaviours))
    shape.prepare(pair)
    with writes_in(round_.when, daemon, **shape.start_options):
        _do([partial(each.change, source[each.name]) for each in behaviours])
    progress = daemon.commit_or_fail()
    if progress["state"] == "FAILED":
        return Outcome(f"{progress['error']}: {progress['errorDescription']}", {})
    assert round_.raw_diffs or "reading the documents again" in daemon.log
    return Outcome("", shape.differences(pair))


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp(str(request.param))
    # Start new clusters, because dropping hundreds of databases takes much longer than starting a server.
    with started_pair(request.param.topology) as pair:
        with pair.daemon(folder).running() as daemon:
            return _sync(pair, daemon, request.param, _chosen(request))


@pytest.mark.each_once
@pytest.mark.parametrize("outcome", [*map(Round, When)], indirect=True, ids=str)
@pytest.mark.parametrize("behaviour", ALL, ids=lambda each: each.name)
def test_a_behaviour_is_synced(outcome: Outcome, behaviour: Behaviour) -> None:
    outcome.assert_equal(behaviour)


@pytest.mark.in_turns(8)
@pytest.mark.each_once
@pytest.mark.parametrize(
    "outcome",
    [Round(When.COPY, raw_diffs=False), Round(When.APPLY, raw_diffs=False)],
    indirect=True,
    ids=str,
)
@pytest.mark.parametrize("behaviour", UPDATES, ids=lambda each: each.name)
def test_a_behaviour_is_synced_without_raw_diffs(outcome: Outcome, behaviour: Behaviour) -> None:
    outcome.assert_equal(behaviour)


@pytest.mark.parametrize("outcome", [Round(When.COPY, topology=TO_SHARDED)], indirect=True, ids=str)
@pytest.mark.parametrize(
    "behaviour",
    _some(0, unfit=_ACROSS_DATABASES),
    ids=lambda each: each.name,
)
def test_a_behaviour_is_synced_to_shards(outcome: Outcome, behaviour: Behaviour) -> None:
    outcome.assert_equal(behaviour)


@pytest.mark.in_turns(5)
@pytest.mark.parametrize(
    "outcome",
    [
        Round(When.APPLY, topology=FROM_SHARDED),
        *(full(Round(when, topology=FROM_SHARDED)) for when in (When.COPY, When.LISTED)),
    ],
    indirect=True,
    ids=str,
)
@pytest.mark.parametrize(
    "behaviour",
    [
        each if each.name in _SHARDED else full(each)
        for each in ALL
        if each.name not in _NOT_ON_ROUTERS
    ],
    ids=lambda each: each.name,
)
def test_a_behaviour_is_synced_from_shards(outcome: Outcome, behaviour: Behaviour) -> None:
    outcome.assert_equal(behaviour)


@pytest.mark.parametrize("outcome", [Round(When.APPLY, topology=SHARDED)], indirect=True, ids=str)
@pytest.mark.parametrize(
    "behaviour",
    _some(1, unfit=_NOT_ON_ROUTERS),
    ids=lambda each: each.name,
)
def test_a_behaviour_is_synced_between_sharded_clusters(
    outcome: Outcome, behaviour: Behaviour
) -> None:
    outcome.assert_equal(behaviour)


# A collection with a document filter must not become a view or a capped collection.
_NOT_FILTERED = {
    *("drop_database_and_create_again", "collection_that_became_a_view"),
    *("convert_to_capped", "convert_to_capped_and_rename"),
    *("convert_to_capped_and_lose_documents", "drop_and_create_with_other_options"),
}
# Foreign data keeps the dropped database alive on the destination: its name in another case cannot be created there.
_NOT_BESIDE_OTHERS = {"drop_database_and_create_in_other_case"}


def _shaped(kind: Kind) -> pytest.MarkDecorator:
    """Return a mark that runs a test in syncs with the shape `kind` (how the destination differs from the source).

    The source is changed during change event application in one sync, and during the copy in another one.
    """
    rounds = [Round(When.APPLY, shape=kind), Round(When.COPY, shape=kind)]
    return pytest.mark.parametrize("outcome", rounds, indirect=True, ids=str)


def _fit(unfit: Container[str]) -> pytest.MarkDecorator:
    chosen = [each for each in ALL if each.name not in unfit]
    return pytest.mark.parametrize("behaviour", chosen, ids=lambda each: each.name)


@pytest.mark.full
@_shaped(Kind.RENAMED)
@_fit(())
def test_a_behaviour_is_synced_with_new_names(outcome: Outcome, behaviour: Behaviour) -> None:
    outcome.assert_equal(behaviour)


@pytest.mark.full
@_shaped(Kind.SELECTED)
@_fit(_NOT_FILTERED)
def test_a_behaviour_is_synced_with_selected_documents(
    outcome: Outcome, behaviour: Behaviour
) -> None:
    outcome.assert_equal(behaviour)


@pytest.mark.full
@_shaped(Kind.BESIDE)
@_fit(_NOT_BESIDE_OTHERS)
def test_a_behaviour_is_synced_beside_foreign_data(outcome: Outcome, behaviour: Behaviour) -> None:
    outcome.assert_equal(behaviour)
