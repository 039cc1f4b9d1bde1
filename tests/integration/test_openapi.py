"""Sends generated requests to the daemon and to the verifier in several states.

No request may cause an internal error, and each answer must match the OpenAPI description.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.fuzzing import Fuzzer
from tests.support.pair import Pair
from tests.support.selection import full
from tests.support.verifier import Verifier
from verifier.compare.points import Point


def fill(pair: Pair) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.c.insert_many([{"_id": number} for number in range(10)])


@pytest.mark.slow
@pytest.mark.parametrize("examples", [2, full(30)])
def test_answers_of_the_sync_service_match_the_description(
    pair: Pair, daemon: Daemon, examples: int
) -> None:
    fill(pair)
    fuzzer = Fuzzer(daemon, examples)
    # Both clusters hold documents, so a valid start is refused for either destination.
    fuzzer.fuzz()
    assert daemon.progress()["state"] == "IDLE"
    pair.destination.empty()
    daemon.start()
    daemon.wait_until_committable()
    fuzzer.fuzz(only_bad=("pause", "commit", "reset"))
    assert daemon.progress()["state"] == "RUNNING"
    daemon.pause()
    fuzzer.fuzz(only_bad=("resume", "reset"))
    assert daemon.progress()["state"] == "PAUSED"
    daemon.resume()
    daemon.commit()
    fuzzer.fuzz()
    assert daemon.progress()["state"] == "COMMITTED"
    pair.assert_equal()


@pytest.mark.full
def test_answers_of_a_failed_sync_match_the_description(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start(includeNamespaces=[{"database": "d", "collections": ["c"]}])
    daemon.wait_until_applying()
    pair.source.client.d.c.rename("out")
    daemon.wait_for_state("FAILED")
    Fuzzer(daemon).fuzz(only_bad=("reset",))
    # The last request of /resume may have been accepted just now; the sync then fails again.
    assert daemon.wait_for_state("FAILED")["error"] == "RenamedOutOfFilter"


@pytest.mark.full
def test_answers_of_a_connecting_process_match_the_description(tmp_path: Path) -> None:
    nobody = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600000"
    daemon = Daemon(nobody, nobody, tmp_path)
    (tmp_path / "wait-briefly").touch()
    try:
        daemon.run(ready=False)
        Fuzzer(daemon).fuzz()
        assert daemon.progress()["state"] == "INITIALIZING"
    finally:
        daemon.close()


@pytest.mark.slow
@pytest.mark.parametrize("examples", [2, full(5)])
def test_answers_of_the_verifier_match_the_description(
    pair: Pair, tmp_path: Path, examples: int
) -> None:
    fill(pair)
    pair.source.client.d.c.create_index("a")
    pair.source.client.d.c.insert_one({"_id": "missing"})
    pair.destination.client.d.c.update_one({"_id": 1}, {"$set": {"a": 1}})
    verifier = Verifier(
        pair.source.uri, pair.destination.uri, tmp_path, "--verifyAll", "--graceSeconds", "0"
    )
    with verifier.running():
        fuzzer = Fuzzer(verifier, examples)
        with verifier.held_at(Point.LISTED):
            verifier.check()
            fuzzer.fuzz(only_bad=("writesOff",))
            assert verifier.progress()["phase"] == "check"
        verifier.writes_off()
        verifier.wait_for_verdict()
        fuzzer.fuzz(only_bad=("check",))
        assert verifier.progress()["verdict"] == "failed"
        # Some of these requests begin checks, and others end them.
        fuzzer.fuzz()
