"""Tests the report of a real sync: after a commit whose process was killed, after a restart, and after a reverse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.integration.test_embedded_verifier import behind_our_back
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.tokens import OPERATOR, READER, bearer, write_tokens
from tests.support.waiting import wait_for
from verifier.runtime.httpd import MOST_READERS

HOSTILE = "<img src=x onerror=alert(1)>"
DOCUMENTS = 300


@pytest.fixture
def audited(pair: Pair, tmp_path: Path) -> Any:
    """Run a daemon that requires API tokens; the test sends commands with the token of the operator `otto`."""
    daemon = pair.daemon(tmp_path, "--tokenFile", str(write_tokens(tmp_path)))
    daemon.use_token(OPERATOR)
    with daemon.running():
        yield daemon


def test_a_report_after_everything_that_can_happen(pair: Pair, audited: Daemon) -> None:
    client = pair.source.client
    client.d[HOSTILE].insert_many({"_id": n, "n": n} for n in range(DOCUMENTS))
    client.d.create_collection("view", viewOn=HOSTILE, pipeline=[])
    assert audited.get("report").json()["error"] == "InvalidState"
    audited.start(reversible=True, enableUserWriteBlocking="sourceAndDestination")
    audited.pause()
    audited.resume()
    audited.wait_until_committable()
    client.d[HOSTILE].update_many({}, {"$inc": {"n": 1}})
    fail_and_resume(pair, audited)
    # Wait until the changes are counted: later, this process is killed in the cut-over.
    wait_for(lambda: audited.report()["events"]["applied"] >= DOCUMENTS, "all changes are counted")
    assert_counted_once(pair, audited)
    commit_with_two_processes(audited)
    first = audited.report()
    assert_committed(first)
    assert audited.terminate() == 0
    audited.run()
    again = audited.report()
    for name in ("commits", "verification", "copy", "failures", "clusters", "phases", "events"):
        assert again[name] == first[name], name
    assert len(again["instances"][0]["processes"]) == 3
    assert_page(audited)
    pair.assert_equal()
    audited.reverse()
    pair.destination.client.d[HOSTILE].insert_one({"_id": "new"})
    audited.commit()
    assert_reversed(audited.report(), first)
    pair.assert_equal()


def assert_counted_once(pair: Pair, daemon: Daemon) -> None:
    """Request several reports at the same time: each applied event must be counted only once."""

    def applied() -> int:
        return int(daemon.progress()["totalEventsApplied"])

    def counted(_: int = 0) -> int:
        return int(daemon.report()["events"]["applied"])

    with ThreadPoolExecutor(MOST_READERS) as pool:
        for _ in range(5):
            before = applied()
            pair.source.client.d[HOSTILE].update_many({}, {"$inc": {"m": 1}})
            wait_for(lambda: applied() >= before + DOCUMENTS, "the changes are applied")
            list(pool.map(counted, range(MOST_READERS)))
    assert counted() == applied()


def fail_and_resume(pair: Pair, daemon: Daemon) -> None:
    """Make a commit fail because of a changed document, and send /repair, which repairs it and resumes the sync."""
    collection = pair.destination.client.d[HOSTILE]
    wait_for(lambda: collection.find_one({"_id": 1, "n": 2}), "the newest change is applied")
    updates = [{"q": {"_id": 1}, "u": {"$set": {"n": -1}}}]
    behind_our_back(pair, {"update": HOSTILE, "updates": updates})
    daemon.commit_or_fail()
    failed = daemon.report()
    assert failed["headline"]["level"] == "bad"
    assert failed["differences"]["documents"] == 1
    assert HOSTILE in failed["differences"]["listed"][0]
    assert failed["verification"]["outcome"] == "failed"
    assert daemon.post("repair").json() == {"success": True}
    daemon.wait_until_committable()


def commit_with_two_processes(daemon: Daemon) -> None:
    daemon.kill_at(Point.STEP_DONE, "definitions prepared")
    daemon.commit_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")


def assert_committed(found: dict[str, Any]) -> None:
    assert found["headline"] == {
        "level": "good",
        "text": "The sync is committed. At the commit, everything that was compared was equal on both clusters.",
    }
    failed, committed = found["commits"]
    assert (failed["outcome"], committed["outcome"]) == ("failed", "committed")
    assert {each["caller"] for each in (failed, committed)} == {"otto"}
    assert {each["address"] for each in (failed, committed)} == {"127.0.0.1"}
    assert committed["downtimeSeconds"] > 0
    assert committed["requested"] <= committed["writable"] <= committed["committed"]
    commands = [each["text"] for each in found["timeline"] if each["what"] == "command"]
    assert commands == ["start", "pause", "resume", "commit", "repair", "commit"]
    (failure,) = found["failures"]
    assert failure["text"].startswith("VerificationFailed: ")
    assert found["repairs"]["documents"] == 1 and HOSTILE in found["repairs"]["listed"][0]
    assert found["copy"]["documents"] == DOCUMENTS and found["copy"]["views"] == 1
    verification = found["verification"]
    assert verification["outcome"] == "passed" and verification["documents"] == DOCUMENTS
    assert verification["rechecked"] >= DOCUMENTS
    assert found["differences"] == {"documents": 0, "definitions": 0, "listed": []}
    assert len(found["instances"][0]["processes"]) == 2
    assert found["options"]["reversible"] is True


def assert_page(daemon: Daemon) -> None:
    """Request the report as an HTML page with a token of the role reader, and check the answer.

    The name of a collection that contains HTML must appear in the page only as escaped text.
    """
    daemon.use_token(READER)
    answer = daemon.get_with("report", {**bearer(READER), "Accept": "text/html,*/*;q=0.8"})
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].startswith(
        "default-src 'none'; style-src 'sha256-"
    )
    assert HOSTILE not in answer.text and "&lt;img src=x onerror=alert(1)&gt;" in answer.text
    assert daemon.get("report", format="html").text.startswith("<!doctype html>")
    assert daemon.get("report", format="pdf").json()["error"] == "InvalidRequest"
    daemon.use_token(OPERATOR)


def assert_reversed(found: dict[str, Any], first: dict[str, Any]) -> None:
    assert found["headline"]["level"] == "good"
    assert found["commits"][:2] == first["commits"]
    assert found["commits"][2]["destination"] == "cluster0"
    (direction,) = found["directions"]
    assert (direction["source"], direction["destination"]) == ("cluster0", "cluster1")
    assert direction["verification"]["documents"] == DOCUMENTS
    assert direction["repairedDocuments"] == 1
    assert found["verification"]["documents"] == DOCUMENTS + 1
