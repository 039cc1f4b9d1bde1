"""Kills and restarts the real verifier at every named point; its verdict must be the same as without kills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox.replica_set import Client
from tests.support.pair import Pair
from tests.support.verifier import Verifier
from verifier.compare.points import Point

KILLS = [
    (Point.BEGUN, 1),
    (Point.LISTED, 1),
    (Point.DEFINITION_COMPARED, 2),
    (Point.TASK_DONE, 1),
    (Point.TASK_DONE, 5),
    (Point.GENERATION_DONE, 1),
    (Point.POSITION_SAVED, 1),
    (Point.GENERATION_BEGUN, 1),
    (Point.GENERATION_DONE, 2),
    (Point.WRITES_OFF, 1),
    (Point.DRAINED, 1),
    (Point.DRAINED, 2),
    (Point.VERDICT_SAVED, 1),
]
BEFORE_WRITES_OFF = KILLS.index((Point.WRITES_OFF, 1))


def _name(kill: tuple[Point, int]) -> str:
    return f"{kill[0].value} {kill[1]}"


def _fill(client: Client) -> None:
    pad = "p" * 2000
    client.d.big.insert_many({"_id": number, "pad": pad} for number in range(3000))
    client.d.small.insert_many({"_id": f"{number}"} for number in range(10))
    client.d.small.create_index("a")
    client.d.create_collection("view", viewOn="small")


@pytest.fixture
def verifier(pair: Pair, tmp_path: Path) -> Iterator[Verifier]:
    options = ("--verifyAll", "--partitionSizeMB", "1", "--graceSeconds", "1")
    # Until a kill takes effect, each worker can complete one more task. With two workers, enough of the nine tasks of
    # generation 0 (the first comparison of all documents) are left for the last kill at a task.
    workers = ("--numWorkers", "2")
    process = Verifier(pair.source.uri, pair.destination.uri, tmp_path, *options, *workers)
    with process.running():
        yield process


def _corrupt(client: Client) -> None:
    client.d.big.delete_one({"_id": 1234})
    client.d.small.insert_one({"_id": "extra"})
    client.d.small.create_index("b")


def _found(verifier: Verifier) -> list[Any]:
    documents = [
        (line["type"], line["namespace"], line["_id"]) for line in verifier.lines("docMismatches")
    ]
    return [*sorted(documents), *verifier.differing_definitions()]


def _expected(changed: Iterable[int]) -> list[Any]:
    """Return the mismatches that the verifier must report: those of documents first, then those of definitions.

    `changed` contains the `_id`s of the documents that were changed on the source only. The other mismatches are always
    the same: a missing and an extra document, and an extra index.
    """
    return [
        *(("content", "d.big", number) for number in changed),
        ("extraOnDst", "d.small", "extra"),
        ("missingOnDst", "d.big", 1234),
        ("extraOnDst", "d.small", "index", "b_1"),
    ]


def test_a_verifier_continues_after_a_kill_at_every_point(pair: Pair, verifier: Verifier) -> None:
    """Kill and restart the verifier at every point of one check in turn: the check must find every difference.

    Each entry of `KILLS` is a point and a number n: the process is killed when it passes the point for the nth time.
    """
    for side in (pair.source, pair.destination):
        _fill(side.client)
    _corrupt(pair.destination.client)
    early, late = KILLS[:BEFORE_WRITES_OFF], KILLS[BEFORE_WRITES_OFF:]
    changed = range(2000, 2000 + len(early))
    verifier.kill()
    for number, (point, passes) in zip(changed, early, strict=True):
        verifier.kill_at(point, number=passes)
        verifier.run()
        if point is Point.BEGUN:
            verifier.post_unanswered("check", {})
        verifier.wait_until_killed()
        # Changes while the verifier is down are detected, too.
        pair.source.client.d.big.update_one({"_id": number}, {"$set": {"pad": "changed"}})
    for point, passes in late:
        verifier.kill_at(point, number=passes)
        verifier.run()
        if point is Point.WRITES_OFF:
            verifier.post_unanswered("writesOff", {})
        verifier.wait_until_killed()
        for side in (pair.source, pair.destination):
            side.client.d.small.insert_one({"_id": f"both, after {_name((point, passes))}"})
    verifier.run()
    assert verifier.progress()["generation"] is not None
    progress = verifier.wait_for_verdict()
    assert (progress["verdict"], _found(verifier)) == ("failed", _expected(changed))
    assert progress["verificationStatus"]["failedTasks"] > 0
    assert progress["writesOff"] is True


@pytest.mark.full
@pytest.mark.parametrize("kill", KILLS, ids=_name)
def test_a_killed_verifier_continues(
    pair: Pair, verifier: Verifier, kill: tuple[Point, int]
) -> None:
    for side in (pair.source, pair.destination):
        _fill(side.client)
    _corrupt(pair.destination.client)
    early = KILLS.index(kill) < BEFORE_WRITES_OFF
    if early:
        verifier.kill_at(kill[0], number=kill[1])
    verifier.post_unanswered("check", {})
    if early:
        pair.source.client.d.big.update_one({"_id": 7}, {"$set": {"pad": "changed"}})
        verifier.wait_until_killed()
    else:
        verifier.wait_for_generation(1)
        pair.source.client.d.big.update_one({"_id": 7}, {"$set": {"pad": "changed"}})
        verifier.kill()
        verifier.kill_at(kill[0], number=kill[1])
        verifier.run()
        verifier.post_unanswered("writesOff", {})
        verifier.wait_until_killed()
    # Changes while the verifier is down are detected, too.
    pair.source.client.d.small.insert_one({"_id": "both"})
    pair.destination.client.d.small.insert_one({"_id": "both"})
    verifier.run()
    assert verifier.progress()["generation"] is not None
    if early:
        verifier.writes_off()
    progress = verifier.wait_for_verdict()
    assert (progress["verdict"], _found(verifier)) == ("failed", _expected([7]))
    assert progress["verificationStatus"]["failedTasks"] > 0
    assert progress["writesOff"] is True


def test_a_verdict_survives_a_restart(pair: Pair, verifier: Verifier) -> None:
    for side in (pair.source, pair.destination):
        _fill(side.client)
    ended = verifier.verify()
    verifier.assert_passed(ended)
    verifier.kill()
    verifier.run()
    again = verifier.progress()
    for name in ("verdict", "phase", "generation", "verificationStatus", "gen0Stats", "writesOff"):
        assert again[name] == ended[name], name
    verifier.assert_passed(verifier.verify())
