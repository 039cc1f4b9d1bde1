"""Runs a check under random writes to both clusters: the check must report exactly the differences at the end.

Other tests check how long a check compares again: the lag of its rechecks, its grace period, and quiet clusters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from itertools import count
from time import monotonic
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient

from tests.support.checks import Checker
from tests.support.pair import TO_SHARDED, Pair, across
from tests.support.selection import full
from tests.support.waiting import wait_for
from verifier.cluster import failures
from verifier.cluster.connect import connect
from verifier.cluster.note import append_note
from verifier.cluster.quiet import is_quiet
from verifier.compare import check as check_module
from verifier.compare import worker as worker_module
from verifier.compare.check_progress import Outcome
from verifier.compare.points import Point
from verifier.compare.record import Request
from verifier.runtime.tasks import StopToken

KEYS: list[Any] = [*range(60), *(f"k{number}" for number in range(20)), {"a": 1}, {"a": [2]}, None]

Change = Callable[[Any], None]


class Writer:
    """Writes to both clusters, like a replicator that makes mistakes.

    Some changes reach the destination late, and some reach only one cluster. A test must therefore compare the clusters
    itself to know how they differ at the end.
    """

    def __init__(self, pair: Pair, seed: int) -> None:
        self._random = random.Random(seed)
        self._sides = (pair.source.client, pair.destination.client)
        self._late: list[Change] = []

    def fill(self) -> None:
        for name in "ab":
            documents = [{"_id": key, "n": 0} for key in self._random.sample(KEYS, 60)]
            for client in self._sides:
                client.d[name].insert_many(documents)
            # Delete a few documents on each side separately, so that they are missing or extra.
            for client in self._sides:
                client.d[name].delete_many({"n": 0, "_id": {"$in": self._random.sample(KEYS, 2)}})

    def write(self, number: int) -> None:
        for _ in range(number):
            change, how = self._change(), self._random.random()
            if how < 0.1:
                self._random.choice(self._sides).d.command("ping")
                change(self._random.choice(self._sides))
            elif how < 0.6:
                for client in self._sides:
                    change(client)
            else:
                change(self._sides[0])
                self._late.append(change)
            if self._late and self._random.random() < 0.5:
                self._late.pop(0)(self._sides[1])

    def catch_up(self) -> None:
        for change in self._late:
            change(self._sides[1])
        self._late.clear()

    def _change(self) -> Change:
        name, key = self._random.choice("ab"), self._random.choice(KEYS)
        number = self._random.randrange(1000)
        kind = self._random.choice(("upsert", "delete", "replace"))

        def change(client: Any) -> None:
            if kind == "upsert":
                client.d[name].update_one({"_id": key}, {"$set": {"n": number}}, upsert=True)
            elif kind == "delete":
                client.d[name].delete_one({"_id": key})
            else:
                client.d[name].replace_one({"_id": key}, {"m": number})

        return change


def _different(pair: Pair) -> set[tuple[str, bytes]]:
    """Compare the documents of d.a and d.b without the verifier; return the namespace and key of each that differs.

    A key is a BSON document with only the `_id`.
    """
    found = set()
    for name in "ab":
        source, destination = (
            {
                bson.encode({"_id": each["_id"]}): bson.encode(each)
                for each in side.client.d[name].find()
            }
            for side in (pair.source, pair.destination)
        )
        for key in {*source, *destination}:
            if source.get(key) != destination.get(key):
                found.add((f"d.{name}", key))
    return found


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", [0, 1, *map(full, range(2, 10))])
def test_remaining_differences_are_reported(pair: Pair, checker: Checker, seed: int) -> None:
    writer = Writer(pair, seed)
    writer.fill()
    with checker.running(grace=0.0 if seed % 2 else 1.0) as check:
        for generation in range(1, 4):
            writer.write(100)
            check.wait_until(Point.GENERATION_BEGUN, generation)
        writer.catch_up()
        verdict = check.end()
    expected = _different(pair)
    assert check.documents() == expected
    assert verdict.outcome is (Outcome.FAILED if expected else Outcome.PASSED)
    assert check.definitions() == set()


def test_the_lag_of_the_rechecks_grows_until_the_changed_documents_are_compared(
    pair: Pair, checker: Checker
) -> None:
    sides = pair.source.client, pair.destination.client

    def write() -> None:
        for side in sides:
            side.d.a.update_one({"_id": 1}, {"$inc": {"n": 1}})

    def lags() -> list[int | None]:
        progress = check.check.figures.progress()
        return [each.recheck_lag_seconds for each in (progress.source, progress.destination)]

    def late() -> bool:
        write()
        return all(lag is not None and lag > 2 for lag in lags())

    for side in sides:
        side.d.a.insert_one({"_id": 1})
    with checker.running() as check:
        with check.held_at(Point.GENERATION_DONE, 1):
            with check.held_at(Point.GENERATION_DONE, 0):
                check.wait_until(Point.GENERATION_DONE, 0)
                write()
            check.wait_until(Point.GENERATION_DONE, 1)
            assert lags() == [None, None]
        with check.held_at(Point.GENERATION_DONE, 3):
            wait_for(late, "the changes wait for generation 3")
        wait_for(lambda: lags() == [0, 0], "all changes are compared")
        check.end()
    check.assert_passed()


def test_a_difference_repaired_in_the_grace_period_is_no_mismatch(
    pair: Pair, checker: Checker
) -> None:
    pair.source.client.d.a.insert_many([{"_id": 1}, {"_id": 2}])
    pair.destination.client.d.a.insert_one({"_id": 1})
    grace = 0.3
    with checker.running(grace=grace) as check:
        with check.held_at(Point.GENERATION_DONE, 1):
            with check.held_at(Point.GENERATION_DONE, 0):
                check.check.no_more_writes()
                for side in ("source", "destination"):
                    check.wait_until(Point.DRAINED, side)
            check.wait_until(Point.GENERATION_DONE, 1)
            pair.destination.client.d.a.insert_one({"_id": 2})
            since = monotonic()
            wait_for(lambda: monotonic() - since > grace, "the grace period is over")
        check.wait_for_verdict()
    check.assert_passed()


def test_the_grace_period_is_over_if_both_clusters_were_quiet(
    pair: Pair, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int | None, int]] = []

    def is_quiet(client: MongoClient[Any], since: Timestamp) -> bool:
        asked.append((client.address and client.address[1], since.time))
        return True

    monkeypatch.setattr(check_module, "is_quiet", is_quiet)
    pair.source.client.d.a.insert_one({"_id": 1})
    with checker.running(grace=3600.0) as check:
        # If the check did not notice that the oplog is quiet, this call would take the whole grace period of an hour.
        assert check.end().outcome is Outcome.FAILED
        ends = [side.end for side in (check.store.record.source, check.store.record.destination)]
    ports = [
        side.client.address and side.client.address[1] for side in (pair.source, pair.destination)
    ]
    assert asked == [(port, end.time - 3601) for port, end in zip(ports, ends) if end]


def test_user_writes_are_distinguished_from_others(pair: Pair) -> None:
    client = pair.source.client

    def quiet_after(*writes: Callable[[], object]) -> bool:
        since = client.admin.command("ping")["operationTime"]
        since = Timestamp(since.time, since.inc + 1)
        for write in writes:
            write()
        return is_quiet(client, since)

    def in_transaction(database: str) -> None:
        with client.start_session() as session, session.start_transaction():
            client[database].a.insert_one({}, session=session)

    client.d.a.insert_one({"_id": 1})
    client["__mdb_internal_mine"].a.insert_one({"_id": 1})
    internal = client["__mdb_internal_mine"].a
    assert quiet_after()
    assert quiet_after(
        lambda: append_note(client, StopToken()),
        lambda: internal.insert_many([{}, {}]),
        lambda: internal.create_index("a"),
        lambda: in_transaction("__mdb_internal_mine"),
    )
    assert not quiet_after(lambda: client.d.a.insert_one({}))
    assert not quiet_after(lambda: client.d.a.update_one({"_id": 1}, {"$set": {"a": 1}}))
    assert not quiet_after(lambda: client.d.a.delete_one({"_id": 1}))
    assert not quiet_after(lambda: client.d.a.create_index("a"))
    assert not quiet_after(lambda: in_transaction("d"))
    assert not quiet_after(lambda: client.drop_database("d"))


def test_an_oplog_that_is_too_short_does_not_prove_quiet(pair: Pair) -> None:
    assert not is_quiet(pair.source.client, Timestamp(1, 0))


@across(TO_SHARDED)
def test_a_mongos_does_not_prove_quiet(pair: Pair) -> None:
    client = pair.destination.client
    assert not is_quiet(client, client.admin.command("ping")["operationTime"])


def test_a_clock_set_forward_does_not_end_the_grace_period(
    pair: Pair, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = count(1_700_000_000, 86_400)
    monkeypatch.setattr(check_module, "time", lambda: float(next(days)))
    pair.source.client.d.a.insert_one({"_id": 1})
    pair.destination.client.d.a.insert_one({"_id": 2})
    with checker.running(grace=3600.0) as check:
        with check.held_at(Point.GENERATION_DONE, 2):
            check.check.no_more_writes()
            check.wait_until(Point.GENERATION_DONE, 2)
            pair.destination.client.d.a.delete_one({"_id": 2})
            pair.destination.client.d.a.insert_one({"_id": 1})
        check.wait_for_verdict()
    check.assert_passed()


def test_a_clock_set_forward_does_not_make_a_difference_last(
    pair: Pair, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = count(1_700_000_000, 86_400)
    monkeypatch.setattr(worker_module, "time", lambda: float(next(days)))
    for side, number in ((pair.source, 1), (pair.destination, 2)):
        side.client.d.a.insert_one({"_id": 1, "n": number})
    with checker.running() as check:
        with check.held_at(Point.GENERATION_BEGUN, 3):
            check.wait_until(Point.GENERATION_BEGUN, 3)
            found = check.check.figures.mismatches
            (shown,) = check.store.document_mismatches(None, None, 0)
    assert (found.are_some, found.lasting) == (True, 0)
    assert shown.last_seen > 1_700_000_000 + 86_400
    assert shown.last_seen - shown.first_seen < 60


def test_a_cluster_that_does_not_answer_is_not_quiet() -> None:
    with closing(connect("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "test")) as client:
        assert not is_quiet(client, Timestamp(1, 0))


def test_an_error_ends_a_check_even_while_its_threads_wait(
    pair: Pair, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server's error does not show that retries are useless, so limit the time of the retries.
    monkeypatch.setattr(failures, "UNFORESEEN_PATIENCE", 1.0)
    for side in (pair.source, pair.destination):
        side.client.d.a.insert_one({"_id": 1})
    # The service would refuse this filter. Here, it causes an error in one of several threads.
    refused = Request(document_filter=bson.encode({"a": {"$near": [1, 1]}}))
    with checker.running(refused) as check:
        assert check.wait_for_verdict().outcome is Outcome.INCOMPLETE


@pytest.mark.full
def test_keys_and_names_of_several_megabytes_are_compared(pair: Pair, checker: Checker) -> None:
    long = 6 << 20
    clustered = {"key": {"_id": 1}, "unique": True}
    keys = [f"{number}{'x' * long}" for number in range(3)]
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("c", clusteredIndex=clustered)
        for name in ("a", "c"):
            for key in keys:
                side.client.d[name].insert_one({"_id": key})
    pair.source.client.d.a.update_one({"_id": keys[1]}, {"$set": {"n" * long: 1}})
    pair.destination.client.d.c.delete_one({"_id": keys[2]})
    check = checker.verdict()
    assert check.verdict is not None and check.verdict.outcome is Outcome.FAILED
    assert check.documents() == {
        ("d.a", bson.encode({"_id": keys[1]})),
        ("d.c", bson.encode({"_id": keys[2]})),
    }
