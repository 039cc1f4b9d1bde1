"""Copies from secondaries if the start requests this: the servers' counters must prove it; the copy must be exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from syncsvc.sandbox.replica_set import Client
from syncsvc.sandbox.workload import Workload
from tests.support.daemon import Daemon
from tests.support.members import ThreeMembers
from tests.support.pair import Pair, Side
from tests.support.selection import full
from tests.support.waiting import wait_for

DOCUMENTS = 3_000
SMALL = 200


@pytest.fixture(scope="module")
def source() -> Iterator[ThreeMembers]:
    with ThreeMembers("source") as started:
        yield started


@pytest.fixture
def pair(source: ThreeMembers) -> Iterator[Pair]:
    with ExitStack() as stack:
        destination = stack.enter_context(ReplicaSet(name="destination"))
        sides = [
            Side(each.uri, stack.enter_context(each.client(w="majority")))
            for each in (source, destination)
        ]
        pair = Pair(sides[0], sides[1])
        pair.empty()
        _fill(pair.source.client)
        yield pair


@pytest.fixture
def orderly(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon with one reader, which copies large collections in small ranges."""
    process = pair.daemon(tmp_path, "--loadLevel", "1")
    process.copy_in_small_steps(300_000)
    with process.running():
        yield process


def _fill(client: Client) -> None:
    client.d.c.insert_many({"_id": n, "n": n, "pad": "p" * 500} for n in range(DOCUMENTS))
    client.d.small.insert_many({"_id": n, "pad": "p" * 500} for n in range(SMALL))
    client.d.create_collection("capped", capped=True, size=1 << 20)
    client.d.capped.insert_many({"_id": n} for n in range(SMALL))


def _returned(source: ThreeMembers) -> dict[str, int]:
    """Return the number of documents that each member has returned since its start, by the member's address."""
    return {each.address: _count(source, each) for each in source.members}


def _count(source: ThreeMembers, member: Mongod) -> int:
    with Client(f"mongodb://{member.address}/?directConnection=true") as client:
        status = client.admin.command("serverStatus")
    count: int = status["metrics"]["document"]["returned"]
    return count


def _secondaries(source: ThreeMembers) -> set[str]:
    return {each.address for each in source.members} - {source.primary().address}


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "mode",
    ["primary", "secondary", *map(full, ("primaryPreferred", "secondaryPreferred", "nearest"))],
)
def test_the_chosen_members_serve_the_copy(
    mode: str, source: ThreeMembers, pair: Pair, orderly: Daemon
) -> None:
    before = _returned(source)
    orderly.start(copyReadPreference=mode, verification={"enabled": False})
    orderly.wait_until_applying()
    read = {name: count - before[name] for name, count in _returned(source).items()}
    secondaries = _secondaries(source)
    of_secondaries = sum(read[name] for name in secondaries)
    of_primary = read[source.primary().address]
    orderly.commit()
    pair.assert_equal()
    # The counters also contain other reads: members return the entries of their oplogs to each other.
    if mode == "nearest":
        assert of_primary + of_secondaries >= DOCUMENTS + 2 * SMALL
    elif mode.startswith("secondary"):
        assert of_secondaries >= DOCUMENTS + SMALL
        # The primary also serves the capped collection.
        assert SMALL <= of_primary < DOCUMENTS / 2
    else:
        assert of_primary >= DOCUMENTS + 2 * SMALL
        assert of_secondaries < DOCUMENTS / 2


def _read_from(source: ThreeMembers, before: dict[str, int]) -> str:
    """Return the address of the secondary that has returned the most documents since `before`.

    `before` maps addresses to numbers of returned documents.
    """
    after = _returned(source)
    return max(_secondaries(source), key=lambda name: after[name] - before[name])


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.parametrize("disturbance", ["step-down", "killed secondary", "killed daemon"])
def test_a_copy_from_a_secondary_survives(
    disturbance: str, source: ThreeMembers, pair: Pair, orderly: Daemon
) -> None:
    before = _returned(source)
    targets = [pair.source.client.d.c, pair.source.client.d.small]
    with Workload(targets):
        with orderly.held_at(Point.BATCH_WRITTEN, number=4):
            orderly.start(copyReadPreference="secondary")
            orderly.wait_until_reached(Point.BATCH_WRITTEN, number=4)
            read = _read_from(source, before)
            _disturb(disturbance, source, read, orderly)
        orderly.wait_until_applying()
    if disturbance == "killed secondary":
        source.restart_member(_index(source, read))
    orderly.commit()
    pair.assert_equal()


def _disturb(disturbance: str, source: ThreeMembers, read: str, daemon: Daemon) -> None:
    if disturbance == "step-down":
        source.step_down()
    elif disturbance == "killed secondary":
        source.kill_member(_index(source, read))
    else:
        daemon.kill()
        daemon.run()


def _index(source: ThreeMembers, address: str) -> int:
    return [each.address for each in source.members].index(address)


@pytest.mark.full
def test_a_preference_without_a_suitable_member_is_refused(pair: Pair, orderly: Daemon) -> None:
    tags = [{"nodeType": "ANALYTICS"}]
    body = orderly.start_body(copyReadPreference="secondary", copyReadPreferenceTags=tags)
    answer = orderly.post("start", body)
    assert (answer.status_code, answer.json()["error"]) == (409, "NoMemberToCopy"), answer.text
    assert "ANALYTICS" in answer.json()["errorDescription"]


@pytest.mark.full
def test_a_reversed_sync_copies_from_the_primary(pair: Pair, orderly: Daemon) -> None:
    """Reverse a sync with copyReadPreference secondary: a new time-series collection must be copied from the primary.

    The former destination, which becomes the source, has no secondary.
    """
    orderly.start(
        copyReadPreference="secondary",
        reversible=True,
        enableUserWriteBlocking="sourceAndDestination",
    )
    orderly.commit()
    orderly.reverse()
    d = pair.destination.client.d
    d.create_collection("series", timeseries={"timeField": "at"})
    d.series.insert_one({"_id": 1, "at": datetime(2026, 1, 1)})
    wait_for(lambda: pair.source.client.d.series.count_documents({}), "d.series is copied")
    orderly.commit()
    pair.assert_equal()


def test_a_copy_waits_for_a_secondary_that_is_behind(
    source: ThreeMembers, pair: Pair, orderly: Daemon
) -> None:
    """Copy from a secondary that has not replicated the newest writes: the copy must wait for them.

    These writes precede the start of the change stream, so no change event reports them; verification is off, too. So
    the clusters are equal only if the copy has read them.
    """
    name = min(_secondaries(source))
    secondary = source.members[_index(source, name)]
    _configure(source, {name: {"tags": {"use": "copy"}}})
    try:
        with source.lagging(secondary):
            d = pair.source.client.d
            d.c.update_many({}, {"$set": {"n": "changed"}})
            d.c.delete_many({"_id": {"$lt": 50}})
            d.small.insert_one({"_id": "new"})
            before = _count(source, secondary)
            orderly.start(
                copyReadPreference="secondary",
                copyReadPreferenceTags=[{"use": "copy"}],
                verification={"enabled": False},
            )
            progress = wait_for(lambda: _waiting_or_past_the_copy(orderly), "a warning")
            assert progress["info"] == "collection copy", progress
            assert not pair.destination.client.d.small.count_documents({})
        orderly.wait_until_applying()
        assert _count(source, secondary) - before >= DOCUMENTS - 50 + SMALL
        orderly.commit()
    finally:
        _configure(source, {})
    pair.assert_equal()


def _waiting_or_past_the_copy(daemon: Daemon) -> dict[str, Any] | None:
    """Return the progress if the daemon warns of a `find` without an answer, or has copied all documents."""
    progress = daemon.progress()
    is_past = progress["info"] == "change event application"
    return progress if is_past or "find of d." in str(progress.get("warnings")) else None


def test_tags_and_hidden_members(source: ThreeMembers, pair: Pair, orderly: Daemon) -> None:
    """Copy from members with a tag: the copy must read the tagged member, and never the hidden one."""
    tagged, hidden = sorted(_secondaries(source))
    _configure(source, {tagged: {"tags": {"use": "copy"}}, hidden: {"hidden": True, "priority": 0}})
    try:
        before = _returned(source)
        tags = [{"use": "nothing"}, {"use": "copy"}]
        orderly.start(
            copyReadPreference="secondary",
            copyReadPreferenceTags=tags,
            verification={"enabled": False},
        )
        orderly.wait_until_applying()
        read = {name: count - before[name] for name, count in _returned(source).items()}
        orderly.commit()
    finally:
        _configure(source, {})
    pair.assert_equal()
    assert read[tagged] >= DOCUMENTS + SMALL
    assert read[hidden] < DOCUMENTS / 2


def _configure(source: ThreeMembers, fields: dict[str, dict[str, Any]]) -> None:
    """Reconfigure the members of the source, and wait until `hello` lists exactly those that are not hidden.

    First, the tags, `hidden` and the priority of all members get their default values. `fields` maps the addresses of
    members to the fields to change.
    """
    with source.client() as client:
        config = client.admin.command("replSetGetConfig")["config"]
        for each in config["members"]:
            each.update(
                {"tags": {}, "hidden": False, "priority": 1, **fields.get(each["host"], {})}
            )
        config["version"] += 1
        client.admin.command("replSetReconfig", config)
        visible = {name for name in _addresses(source) if not fields.get(name, {}).get("hidden")}
        wait_for(lambda: {*client.admin.command("hello")["hosts"]} == visible, "the new hosts")


def _addresses(source: ThreeMembers) -> list[str]:
    return [each.address for each in source.members]
