"""Runs the verifier beside a sync, with the steps that the documentation describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.verifier import Verifier
from tests.support.waiting import wait_for


@pytest.fixture
def verifier(pair: Pair, tmp_path: Path) -> Iterator[Verifier]:
    folder = tmp_path / "verifier"
    folder.mkdir()
    options = ("--verifyAll", "--graceSeconds", "1")
    with Verifier(pair.source.uri, pair.destination.uri, folder, *options).running() as process:
        yield process


def _fill(pair: Pair) -> list[str]:
    client = pair.source.client
    writes.indexes(client)
    writes.fill(client)
    writes.new_collections(client)
    writes.views(client)
    client.d.busy.insert_many({"_id": number, "n": 0} for number in range(5000))
    return ["busy", "c"]


def _check_while_it_syncs(pair: Pair, daemon: Daemon, verifier: Verifier) -> None:
    """Run a sync until it is COMMITTED, and start a check beside it, which is still running at the end.

    An application writes to the source until shortly before the commit.
    """
    names = _fill(pair)
    daemon.start()
    daemon.wait_until_applying()
    with Workload([pair.source.client.d[name] for name in names], seed=5) as workload:
        verifier.check()
        assert verifier.progress()["phase"] != "idle"
        verifier.wait_for_generation(2)
        wait_for(lambda: workload.written.updated > 100, "documents have changed")
        workload.stop()
    daemon.commit()


def test_a_running_sync_is_verified(pair: Pair, daemon: Daemon, verifier: Verifier) -> None:
    _check_while_it_syncs(pair, daemon, verifier)
    verifier.writes_off()
    progress = verifier.wait_for_verdict()
    verifier.assert_passed(progress)
    assert progress["verdictReasons"] == []
    assert (progress["phase"], progress["error"]) == ("idle", None)
    status = progress["verificationStatus"]
    assert status["failedTasks"] == status["metadataMismatchTasks"] == 0
    assert status["totalTasks"] == status["completedTasks"] > 0
    assert progress["srcChangeStats"]["eventCounts"]["update"] > 0
    assert progress["totalRechecksDone"] > 0
    assert verifier.lines("docMismatches") == verifier.lines("nsMismatches") == []
    pair.assert_equal()


def test_a_write_to_the_destination_by_a_user_is_found(
    pair: Pair, daemon: Daemon, verifier: Verifier
) -> None:
    _check_while_it_syncs(pair, daemon, verifier)
    # The workload has deleted some documents, perhaps also number 77.
    changed = pair.destination.client.d.busy.find_one_and_update(
        {"_id": {"$gte": 77}}, {"$set": {"n": "behind the back"}}
    )
    assert changed is not None
    verifier.writes_off()
    progress = verifier.wait_for_verdict()
    assert progress["verdict"] == "failed"
    assert progress["verificationStatus"]["failedTasks"] == 1
    assert any(str(changed["_id"]) in reason for reason in progress["verdictReasons"])
    (line,) = verifier.lines("docMismatches")
    assert (line["type"], line["namespace"]) == ("content", "d.busy")
    assert line["_id"] == changed["_id"]
    assert [field["path"] for field in line["fields"]] == ["n"]
    assert verifier.lines("nsMismatches") == []


def test_only_the_indexes_that_a_sync_leaves_out_are_reported(
    pair: Pair, daemon: Daemon, verifier: Verifier
) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n")
    daemon.start(buildIndexes="never")
    daemon.commit()
    progress = verifier.verify()
    assert progress["verdict"] == "failed"
    assert verifier.lines("docMismatches") == []
    (line,) = verifier.lines("nsMismatches")
    assert (line["type"], line["aspect"], line["component"]) == ("missingOnDst", "index", "n_1")
