"""Tests the metadata for dashboards of mongosync, and the webhook, which must receive a notice of each state change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from tests.support.daemon import Daemon
from tests.support.duo import running_duo
from tests.support.fleet import Fleet
from tests.support.metrics import scrape
from tests.support.mongosync_readers import (
    copied_bytes,
    copied_phases,
    global_state,
    overwrite,
    resume_data,
)
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from tests.support.receiver import Receiver, receiving, write_secret
from tests.support.selection import full
from tests.support.service_process import free_port
from tests.support.verifier import Verifier
from tests.support.waiting import wait_for

REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def fill(pair: Pair) -> None:
    for name in ("one", "two"):
        pair.shard(f"d.{name}")
        pair.source.client.d[name].insert_many({"_id": n, "pad": "p" * 100} for n in range(500))


def shown_state(pair: Pair, state: str) -> dict[str, Any]:
    """Wait until `resumeData`, the document for dashboards, has this state; return the document."""
    wait_for(lambda: resume_data(pair.destination).get("state") == state, f"{state} in resumeData")
    return resume_data(pair.destination)


@pytest.mark.slow
@across(REPLICA_SETS, full(SHARDED))
def test_a_sync_is_shown_to_dashboards_and_told_to_the_webhook(
    pair: Pair, tmp_path: Path, receiver: Receiver
) -> None:
    fill(pair)
    options = ("--webhook", receiver.url, "--webhookSecretFile", write_secret(tmp_path))
    with pair.daemon(tmp_path, *options).running() as daemon:
        receiver.wait_for_state("IDLE")
        assert METADATA_DATABASE not in pair.destination.client.list_database_names()
        with daemon.held_at(Point.COLLECTION_COPIED):
            daemon.start(**REVERSIBLE)
            daemon.wait_until_reached(Point.COLLECTION_COPIED)
            assert set(copied_phases(pair.destination)) == {"d.one", "d.two"}
            # The daemon never reads these fields, so wrong values must have no effect.
            overwrite(
                pair.destination,
                "partitions",
                namespace={"db": "x", "coll": "y"},
                partitionPhase="not started",
                copiedByteCount=-1,
                totalByteCount=-1,
            )
        daemon.wait_until_committable()
        _shows_what_dashboards_read(pair, daemon)
        _ignores_what_others_write(pair, daemon)
        receiver.wait_for_state("RUNNING")
        pair.source.client.d.one.insert_one({"_id": "late"})
        _is_written_again_by_a_new_process(pair, daemon)
        daemon.commit()
        shown_state(pair, "COMMITTED")
        pair.assert_equal()
        daemon.reverse()
        direction = wait_for(
            lambda: resume_data(pair.destination)["state"] == "RUNNING"
            and resume_data(pair.destination)["directionMapping"],
            "the reversed direction",
        )
        assert direction["source"] == daemon.progress()["directionMapping"]["Source"]
        receiver.wait_for_state("RUNNING")
        killed = ["IDLE", "RUNNING", "PAUSED", "RUNNING"]
        # A restarted process first sends a notice of the saved state.
        restarted = ["RUNNING", "COMMITTING", "COMMITTED", "REVERSING", "RUNNING"]
        assert receiver.states() == [*killed, *restarted]
        notices = receiver.notices
        previous = [each["previousState"] for each in notices if each["event"] == "state"]
        assert previous == [None, *killed[:-1], None, *restarted[:-1]]
        receiver.assert_signed()
        receiver.assert_in_order()
        outcomes = scrape(daemon)["mongosync_webhook_notices_total"]
        assert outcomes == {("delivered",): notices[-1]["number"], ("dropped",): 0}
        assert "T0k3n" not in daemon.log + daemon.output


def _shows_what_dashboards_read(pair: Pair, daemon: Daemon) -> None:
    shown = shown_state(pair, "RUNNING")
    wait_for(
        lambda: resume_data(pair.destination)["syncPhase"] == "change event application",
        "the phase",
    )
    phases = [each["phase"] for each in resume_data(pair.destination)["phaseTransitions"]]
    assert phases == [
        "initializing collections and indexes",
        "collection copy",
        "building indexes",
        "change event application",
    ]
    mapping = daemon.progress()["directionMapping"]
    assert shown["directionMapping"] == {
        "source": mapping["Source"],
        "destination": mapping["Destination"],
    }
    before = resume_data(pair.destination)["crudChangeStreamResumeInfo"]["lastEventTs"]
    assert isinstance(before, Timestamp)
    # The document is written again a few times a minute, even if nothing else changes.
    wait_for(
        lambda: resume_data(pair.destination)["crudChangeStreamResumeInfo"]["lastEventTs"] > before,
        "a newer position",
    )
    state = global_state(pair.destination)
    assert (state["reversible"], state["writeBlockingMode"]) == (True, "sourceAndDestination")
    assert (state["buildIndexes"], state["verificationMode"]) == ("beforeDataCopy", "startAtCEA")


def _ignores_what_others_write(pair: Pair, daemon: Daemon) -> None:
    daemon.pause()
    shown_state(pair, "PAUSED")
    wrong = {"state": "IDLE", "syncPhase": 7, "phaseTransitions": "none", "reversible": "no"}
    for name in ("resumeData", "globalState"):
        overwrite(pair.destination, name, **wrong, owner="another")
    overwrite(pair.destination, "partitions", partitionPhase="in progress", copiedByteCount=5)
    daemon.resume()
    # The engine that the resume creates writes the documents again.
    shown_state(pair, "RUNNING")


def _is_written_again_by_a_new_process(pair: Pair, daemon: Daemon) -> None:
    delete = {"q": {}, "limit": 0}
    pair.destination.client[METADATA_DATABASE].command(
        {"delete": "resumeData", "deletes": [delete], "mayBypassWriteBlocking": True}
    )
    daemon.kill()
    daemon.run()
    shown_state(pair, "RUNNING")


def test_partitions_show_what_is_copied(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    daemon.start()
    daemon.wait_until_committable()
    assert copied_phases(pair.destination) == {"d.one": {"done": 1}, "d.two": {"done": 1}}
    copied = daemon.progress()["collectionCopy"]["estimatedCopiedBytes"]
    assert copied_bytes(pair.destination) == (copied, copied)


@pytest.mark.full  # the warning takes 45 seconds
@pytest.mark.slow
def test_documents_that_cannot_be_written_harm_nothing(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    # A view accepts no writes. Without the other collection, the daemon would take it for the metadata of mongosync.
    pair.destination.client[METADATA_DATABASE].create_collection("runs")
    pair.destination.client[METADATA_DATABASE].command({"create": "resumeData", "viewOn": "x"})
    daemon.start()
    daemon.wait_until_committable()
    assert "does not affect the sync" in daemon.wait_for_warning("dashboards")
    assert len(daemon.warnings("dashboards")) == 1
    assert global_state(pair.destination)["reversible"] is False
    daemon.commit()
    pair.assert_equal()


def test_each_instance_has_its_document(pair: Pair, fleet: Fleet) -> None:
    fill(pair)
    fleet.start()
    name = fleet.names[-1]
    wait_for(lambda: resume_data(pair.destination, name).get("state") == "RUNNING", "the follower")
    shown_state(pair, "RUNNING")
    assert global_state(pair.destination)["_id"] == "coordinator"


@pytest.mark.full
def test_a_standby_continues_to_tell(pair: Pair, tmp_path: Path, receiver: Receiver) -> None:
    fill(pair)
    with running_duo(pair, tmp_path, "--webhook", receiver.url) as duo:
        duo.active.start()
        receiver.wait_for_state("RUNNING")
        first = receiver.notices[-1]["id"].partition("-")[0]
        owner = shown_state(pair, "RUNNING")["owner"]
        duo.active.kill()
        duo.await_takeover("SIGKILL")
        wait_for(lambda: not receiver.notices[-1]["id"].startswith(first), "its first notice")
        assert receiver.states() == ["IDLE", "RUNNING", "RUNNING"]
        wait_for(lambda: resume_data(pair.destination)["owner"] != owner, "the new owner")
        duo.active.commit()
        receiver.wait_for_state("COMMITTED")
        receiver.assert_in_order()


@pytest.mark.full
@pytest.mark.slow
def test_a_receiver_that_fails_delays_nothing(pair: Pair, tmp_path: Path) -> None:
    fill(pair)
    port = free_port()
    with receiving(port) as hanging:
        hanging.hangs = True
        daemon = pair.daemon(tmp_path, "--webhook", hanging.url)
        try:
            daemon.run()
            daemon.start()
            daemon.wait_until_committable()
            wait_for(lambda: hanging.attempts, "an attempt")
            began = monotonic()
            daemon.pause()
            daemon.resume()
            assert monotonic() - began < 15
            daemon.wait_until_committable()
            daemon.wait_for_warning("No notices are delivered to the webhook")
            hanging.released.set()
        except BaseException:
            daemon.close()
            raise
    try:
        with receiving(port) as receiver:
            wait_for(
                lambda: [
                    each["warning"]["kind"]
                    for each in receiver.notices
                    if each["event"] == "warningEnded"
                ],
                "the end of the warning",
            )
            assert receiver.states() == ["IDLE", "RUNNING", "PAUSED", "RUNNING"]
            receiver.assert_in_order()
            events = [each["event"] for each in receiver.notices]
            assert events.count("warningBegan") == events.count("warningEnded") == 1
            receiver.hangs = True
            attempts = receiver.attempts
            daemon.pause()
            wait_for(lambda: receiver.attempts > attempts, "a notice that hangs")
            began = monotonic()
            assert daemon.terminate() == 0
            assert monotonic() - began < 10
            receiver.released.set()
        # The log has one line for the begin of the wait, and one for its end.
        assert daemon.log.count('"wait": "No notices are delivered to the webhook') == 2
    finally:
        daemon.close()


def test_the_verifier_tells_its_verdict(pair: Pair, tmp_path: Path, receiver: Receiver) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.c.insert_one({"_id": 1})
    pair.destination.client.d.c.insert_one({"_id": 2})
    options = ("--verifyAll", "--graceSeconds", "0", "--webhook", receiver.url)
    secret = ("--webhookSecretFile", write_secret(tmp_path))
    verifier = Verifier(pair.source.uri, pair.destination.uri, tmp_path, *options, *secret)
    with verifier.running():
        verifier.verify()
        wait_for(lambda: receiver.notices and receiver.notices[-1]["verdict"], "the verdict")
        last = receiver.notices[-1]
        assert (last["event"], last["phase"], last["verdict"]) == ("phase", "idle", "failed")
        assert last["program"] == "syncsvc-verifier" and last["reasons"]
        receiver.assert_signed()
        wait_for(lambda: scrape(verifier)["verifier_webhook_waiting"] == {(): 0}, "no notice waits")
        # A restarted verifier sends the verdict again, because the notice may not have been delivered before the kill.
        verifier.kill()
        verifier.run()
        wait_for(lambda: receiver.notices[-1]["id"] != last["id"], "the verdict again")
        again = receiver.notices[-1]
        assert [again[name] for name in ("verdict", "time")] == [last["verdict"], last["time"]]
