"""Tests the saved partitions of a copy, which are planned, claimed, copied and forgotten.

Exactly one instance must claim each partition, even if replies of the server are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandListener, CommandStartedEvent, CommandSucceededEvent

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.partitions import Copied, Partition, Partitions
from syncsvc.saved.registry import CopyStatus
from tests.support.failpoints import failing, times
from tests.support.pair import Pair
from verifier.cluster.connect import connect
from verifier.cluster.ranges import Range
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

ONE, OTHER = b"1" * 16, b"2" * 16
BOUNDS = [None, *(bson.encode({"_id": number}) for number in range(9)), None]
RANGES = [Range(*each) for each in zip(BOUNDS, BOUNDS[1:])]


def saved(pair: Pair, instance: str, reversals: int = 0) -> Partitions:
    """Return the saved partitions as a new process with this instance ID sees them.

    `reversals` is the number of earlier reversals of the sync.
    """
    stop = StopToken()
    client = pair.destination.client
    return Partitions(
        client[METADATA_DATABASE],
        ClusterWriter(client, False, stop),
        reversals,
        instance,
        False,
        stop,
    )


def whole(totals: Mapping[bytes, int]) -> list[Partition]:
    """Return one partition for each collection, with all of its documents.

    `totals` maps collection UUIDs to sizes in bytes.
    """
    return [Partition(uuid, 0, total=total) for uuid, total in totals.items()]


def claimed(partitions: Partitions) -> list[Partition]:
    return list(iter(partitions.claim, None))


@contextmanager
def lost_answers(pair: Pair, command: str) -> Iterator[None]:
    """Make the server run the first `command` in the block, but report a write concern error.

    The client then cannot know whether the command has taken effect, as after a lost reply.
    """
    lost = {"code": 91, "errmsg": "lost"}
    data = {"failCommands": [command], "writeConcernError": lost}
    with failing(pair.destination.client, data, times(1)):
        yield


def test_a_saved_plan_is_kept(pair: Pair) -> None:
    partitions = saved(pair, "a")
    assert partitions.all_done() and partitions.planned() == set()
    partitions.plan(ONE, RANGES, 1000)
    partitions.plan(ONE, [Range()], 5)
    partitions.plan_whole(whole({ONE: 5, OTHER: 7}))
    assert partitions.planned() == {ONE, OTHER}
    assert not partitions.all_done()
    assert claimed(partitions) == [
        *(Partition(ONE, number, each, 100, instance="a") for number, each in enumerate(RANGES)),
        Partition(OTHER, 0, total=7, instance="a"),
    ]


def test_an_interrupted_plan_leaves_no_partitions(pair: Pair) -> None:
    partitions = saved(pair, "a")
    partitions.plan(ONE, RANGES)
    pair.destination.client[METADATA_DATABASE].partitions.delete_one({"_id.number": 0})
    partitions.plan(ONE, RANGES[:2])
    assert [each.range for each in claimed(partitions)] == RANGES[:2]


@pytest.mark.full
def test_an_interrupted_deletion_leaves_no_complete_plan(pair: Pair) -> None:
    partitions = saved(pair, "a")
    partitions.plan(ONE, RANGES * 150)
    refused = {"failCommands": ["delete"], "errorCode": 2}
    with failing(pair.destination.client, refused, {"skip": 1}), pytest.raises(OperationFailure):
        partitions.forget(ONE)
    assert partitions.planned() == set()
    assert claimed(partitions) != []


def test_a_reversed_sync_has_separate_partitions(pair: Pair) -> None:
    saved(pair, "a").plan(ONE, RANGES)
    assert claimed(saved(pair, "a", reversals=1)) == []
    assert len(claimed(saved(pair, "a", reversals=2))) == len(RANGES)


def test_each_partition_is_claimed_once_even_if_replies_are_lost(pair: Pair) -> None:
    partitions = saved(pair, "a")
    with lost_answers(pair, "update"):
        partitions.plan(ONE, RANGES)
    with lost_answers(pair, "update"):
        found = claimed(partitions)
    assert [each.range for each in found] == RANGES
    assert {each.instance for each in found} == {"a"}
    assert claimed(saved(pair, "b")) == []


def test_large_partitions_are_claimed_first_and_small_ones_together(pair: Pair) -> None:
    partitions = saved(pair, "a")
    partitions.plan_whole(whole({number.to_bytes(16): number for number in range(30)}))
    partitions.plan(ONE, RANGES[:2], 4000)
    first = [partitions.claim(), partitions.claim(), partitions.claim()]
    assert [each and each.total for each in first] == [2000, 2000, 29]
    others = claimed(saved(pair, "b"))
    # The partitions that were claimed in one batch with the third one are already taken.
    assert [each.total for each in others] == [*reversed(range(10))]


def test_two_instances_claim_concurrently(pair: Pair) -> None:
    planner = saved(pair, "a")
    planner.plan(ONE, RANGES * 10)
    planner.plan_whole(whole({number.to_bytes(16): 1 for number in range(60)}))
    with connect(pair.destination.uri, "test") as client, ThreadPoolExecutor() as pool:
        other = Pair(pair.source, replace(pair.destination, client=client))
        instances = saved(pair, "a"), saved(other, "b")
        # Two threads for each instance.
        lists = list(pool.map(claimed, (*instances, *instances)))
        assert [claimed(each) for each in instances] == [[], []]
    found = [each for part in lists for each in part]
    assert Counter((each.uuid, each.number) for each in found).most_common(1)[0][1] == 1
    assert len(found) == 160
    assert {each.instance for each in found} == {"a", "b"}


class _Times(CommandListener):
    """Records the cluster times of updates and the `afterClusterTime` of reads, both in the order of the commands."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.waited_for: list[Any] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("find", "aggregate"):
            self.waited_for.append(event.command["readConcern"]["afterClusterTime"])

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name == "update":
            self.updates.append(event.reply["operationTime"])

    def failed(self, event: object) -> None: ...


def test_a_claim_sees_the_plans_and_claims_before_it(pair: Pair) -> None:
    """Claim partitions: each read must wait (`afterClusterTime`) for the write that last saved or claimed partitions.

    Otherwise, a read from a new primary could miss some partitions, and the copy could end without them.
    """
    times = _Times()
    with MongoClient[dict[str, Any]](pair.destination.uri, event_listeners=[times]) as client:
        partitions = saved(Pair(pair.source, replace(pair.destination, client=client)), "a")
        partitions.plan(ONE, RANGES)
        for _ in range(2):
            partitions.claim()
            # The last read must wait for the last update before it: updates[-1] is the claim after this read.
            assert times.waited_for[-1] >= times.updates[-2]


def test_the_copied_amounts_include_everything_that_was_saved_before(pair: Pair) -> None:
    """Sum up partitions that another instance has copied: the read must wait for the write that saved them.

    Otherwise, a read from a new primary could return an older state, in which a copied collection is not done.
    """
    times, client = _Times(), pair.destination.client
    with MongoClient[dict[str, Any]](pair.destination.uri, event_listeners=[times]) as listened:
        partitions = saved(Pair(pair.source, replace(pair.destination, client=listened)), "a")
        partitions.plan(ONE, RANGES)
        for each in claimed(saved(pair, "b")):
            saved(pair, "b").save(replace(each, status=CopyStatus.DONE, copied=2, documents=1))
        saved_at = client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
        assert partitions.copied() == {ONE: Copied(20, 10, done=True)}
        assert times.waited_for[-1] >= saved_at


def test_unfinished_claims_are_claimed_again_after_a_restart(pair: Pair) -> None:
    before = saved(pair, "a")
    before.plan(ONE, RANGES)
    done, begun, waiting = (before.claim() for _ in range(3))
    assert done and begun and waiting
    before.save(replace(done, status=CopyStatus.DONE, copied=7, documents=1))
    begun = replace(
        begun, status=CopyStatus.COPYING, copied=50, documents=5, resume_point=BOUNDS[1]
    )
    before.save(begun)
    assert before.copied() == {ONE: Copied(57, 6, done=False)}
    assert before.copied("a") == before.copied() and before.copied("b") == {}
    assert len(claimed(saved(pair, "b"))) == len(RANGES) - 3
    assert claimed(saved(pair, "a")) == [begun, waiting]


def test_forgotten_claims_are_not_claimed_again_after_a_restart(pair: Pair) -> None:
    """Forget a collection whose copy was interrupted, and plan it again: its copy must begin at the beginning."""
    before = saved(pair, "a")
    before.plan(ONE, RANGES)
    before.plan_whole(whole({OTHER: 1}))
    for each in claimed(before):
        before.save(replace(each, status=CopyStatus.COPYING, copied=5, resume_point=BOUNDS[1]))
    restarted = saved(pair, "a")
    restarted.forget(ONE)
    restarted.plan(ONE, RANGES[:2])
    found = claimed(restarted)
    assert [each.range for each in found] == [Range(), *RANGES[:2]]
    assert [each.resume_point for each in found] == [BOUNDS[1], None, None]


def test_a_collection_is_copied_once_all_its_partitions_are(pair: Pair) -> None:
    partitions = saved(pair, "a")
    partitions.plan(ONE, RANGES)
    partitions.plan_whole(whole({OTHER: 1}))
    for each in claimed(partitions):
        assert not partitions.all_done()
        partitions.save(replace(each, status=CopyStatus.DONE, copied=2, documents=1))
    assert partitions.all_done()
    assert partitions.copied() == {ONE: Copied(20, 10, True), OTHER: Copied(2, 1, True)}
    partitions.forget(ONE)
    assert partitions.planned() == {OTHER}
