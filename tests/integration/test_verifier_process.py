"""Tests the verifier as its operator sees it: options, messages, exit statuses, HTTP answers and the log."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox import ReplicaSet
from tests.support.custom_roles import creation, of_state, of_verifier
from tests.support.failpoints import failing
from tests.support.metrics import scrape
from tests.support.obedience import slug
from tests.support.pages import evaluate
from tests.support.pair import Pair
from tests.support.service_process import ROOT
from tests.support.verifier import Verifier
from tests.support.waiting import PATIENCE, wait_for
from verifier import __version__
from verifier.compare.points import Point

DEAD = "mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=200"
STATE = "__mdb_internal_syncsvc_verifier"


@pytest.fixture
def verifier(pair: Pair, tmp_path: Path) -> Iterator[Verifier]:
    """Return a verifier of the two clusters that is not started."""
    process = Verifier(
        pair.source.uri, pair.destination.uri, tmp_path, "--verifyAll", "--graceSeconds", "0"
    )
    yield process
    process.close()


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "verifier", *options]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*options), capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, check=False
    )


def check_once(pair: Pair, *options: str) -> subprocess.CompletedProcess[str]:
    uris = ("--srcURI", pair.source.uri, "--destURI", pair.destination.uri)
    return run(*uris, "--checkOnce", "--graceSeconds", "0", *(options or ("--verifyAll",)))


def fill(pair: Pair, documents: int = 100) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.c.insert_many([{"_id": number, "a": 1} for number in range(documents)])
        side.client.d.v.insert_one({"_id": "x"})


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"syncsvc-verifier {__version__}\n")


@pytest.mark.in_turns
@pytest.mark.parametrize("once, status", [([], 1), (["--checkOnce"], 2)])
@pytest.mark.parametrize(
    "uri, said",
    [(DEAD, "ClusterUnreachable"), ("mongodb://127.0.0.1/?w=1", "write concern must be majority")],
)
def test_bad_clusters_end_the_process(
    replica_sets: Pair, uri: str, said: str, once: list[str], status: int
) -> None:
    done = run(
        "--srcURI",
        replica_sets.source.uri,
        "--destURI",
        uri,
        "--verifyAll",
        "--serverPort",
        "0",
        *once,
    )
    assert done.returncode == status
    *_, last = done.stderr.splitlines()
    assert said in last and "destination" in last
    assert "secret" not in done.stderr + done.stdout


def test_a_port_in_use_is_reported(verifier: Verifier, pair: Pair) -> None:
    verifier.run()
    uris = ("--srcURI", pair.source.uri, "--destURI", pair.destination.uri)
    done = run(*uris, "--verifyAll", "--serverPort", str(verifier.port))
    assert done.returncode == 1
    assert "AddressNotAvailable" in done.stderr and str(verifier.port) in done.stderr


def test_the_same_cluster_twice_is_refused(pair: Pair) -> None:
    done = run(
        "--srcURI", pair.source.uri, "--destURI", pair.source.uri, "--verifyAll", "--checkOnce"
    )
    assert done.returncode == 2
    assert "SameCluster" in done.stderr and done.stdout == ""


def test_a_single_check_passes(pair: Pair) -> None:
    fill(pair)
    done = check_once(pair)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("PASSED: ") and lines[0] == lines[-1]
    assert "Compared 101 documents" in done.stdout
    messages = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert messages[0] == "Version info" and messages[-1] == "Stopped."


def test_a_single_check_fails_and_names_the_differences(pair: Pair, tmp_path: Path) -> None:
    fill(pair)
    pair.destination.client.d.c.update_one({"_id": 7}, {"$set": {"a": 1.0}})
    pair.destination.client.d.v.create_index("a")
    done = check_once(pair, "--verifyAll", "--logPath", str(tmp_path / "log"))
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("FAILED: ") and lines[0] == lines[-1]
    (row,) = (line for line in lines if line.startswith("different") and " d.c " in line)
    assert row.split()[1:5] == ["d.c", "int", "7", "a:"]
    assert [line for line in lines if "index a_1" in line and line.startswith("extra")]
    assert (tmp_path / "log" / "verifier.log").exists()


@pytest.mark.full
def test_only_requested_namespaces_are_checked(pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_one({"_id": 7})
    assert check_once(pair, "--srcNamespace", "d.v").returncode == 0
    # Without this error, users would mistake an empty check for a passed one.
    nothing = check_once(pair, "--includeNamespaces", '[{"database": "e"}]')
    assert nothing.returncode == 2 and "NothingToCompare" in nothing.stdout
    excluded = '[{"database": "d", "collectionsRegex": {"pattern": "^c$"}}]'
    assert check_once(pair, "--verifyAll", "--excludeNamespaces", excluded).returncode == 0
    assert check_once(pair, "--srcNamespace", "d.c").returncode == 1


@pytest.mark.full
def test_renamed_namespaces_are_checked(pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.rename("other")
    names = ("--srcNamespace", "d.c,d.v", "--dstNamespace", "d.other,d.v")
    assert check_once(pair, *names).returncode == 0


@pytest.mark.full
def test_a_signal_ends_a_single_check(pair: Pair, tmp_path: Path) -> None:
    fill(pair)
    (tmp_path / "hold-listed-1").touch()
    uris = ("--srcURI", pair.source.uri, "--destURI", pair.destination.uri)
    options = (*uris, "--verifyAll", "--checkOnce", "--logPath", str(tmp_path))
    module = [sys.executable, "-m", "tests.support.observed_verifier", str(tmp_path), *options]
    with subprocess.Popen(module, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for((tmp_path / "reached-listed-1").exists, "the check begins")
            process.send_signal(signal.SIGINT)
            (tmp_path / "hold-listed-1").unlink()
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, output) == (2, "")
    assert pair.destination.client[STATE].check.count_documents({}) == 1
    assert check_once(pair).returncode == 0


def test_commands_at_the_wrong_moment_are_refused_and_change_nothing(
    verifier: Verifier, pair: Pair
) -> None:
    fill(pair)
    verifier.run()
    progress = verifier.progress()
    assert (progress["phase"], progress["verdict"], progress["generation"]) == ("idle", None, None)
    assert verifier.post("writesOff").json()["error"] == "NoCheckRunning"
    with verifier.held_at(Point.LISTED):
        verifier.check()
        assert verifier.progress()["phase"] == "check"
        assert verifier.post("check").json()["error"] == "CheckInProgress"
        verifier.writes_off()
        assert verifier.post("writesOff").json()["error"] == "WritesAlreadyOff"
    verifier.assert_passed(verifier.wait_for_verdict())
    assert verifier.post("writesOff").json()["error"] == "NoCheckRunning"


@pytest.mark.parametrize(
    "body, error, named",
    [
        ({"filter": {"$nope": 1}}, "InvalidFilter", "$nope"),
        ({"filter": {"a": {"$type": "?"}}}, "InvalidFilter", "?"),
        ({"filter": {"a": {"$near": [1, 1]}}}, "InvalidFilter", "$near"),
        ({"filter": 1}, "InvalidRequest", "filter"),
        ({"fitler": {}}, "InvalidRequest", "fitler"),
    ],
)
def test_an_invalid_check_is_refused(
    verifier: Verifier, body: dict[str, Any], error: str, named: str
) -> None:
    verifier.run()
    answer = verifier.post("check", body)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert named in answer.json()["errorDescription"]
    assert verifier.progress()["phase"] == "idle"


def test_a_document_filter_selects_documents(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_many({"_id": {"$gte": 90}})
    verifier.run()
    chosen = verifier.verify(filter={"_id": {"$lt": 90}, "$where": "this.a == 1"})
    verifier.assert_passed(chosen)
    others = verifier.verify(filter={"$where": "this._id == 90"})
    assert others["verdict"] == "failed"
    assert [line["_id"] for line in verifier.lines("docMismatches")] == [90]


def test_a_document_filter_may_have_a_date_that_python_does_not_have(
    verifier: Verifier, pair: Pair
) -> None:
    fill(pair)
    date = {"$date": {"$numberLong": str(2**60)}}
    element = {"database": "d", "collection": "c", "filter": {"a": {"$not": {"$gt": date}}}}
    verifier.run()
    verifier.assert_passed(verifier.verify(filter={"a": {"$ne": date}}, documentFilter=[element]))


def test_a_second_check_passes_after_a_repair(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_one({"_id": 7})
    verifier.run()
    assert verifier.verify()["verdict"] == "failed"
    pair.destination.client.d.c.insert_one({"_id": 7, "a": 1})
    verifier.assert_passed(verifier.verify())
    assert verifier.lines("docMismatches") == []
    assert verifier.terminate() == 0
    reported = [json.loads(line)["message"].partition(":")[0] for line in verifier.log.splitlines()]
    assert (reported.count("FAILED"), reported.count("PASSED")) == (2, 2)


def test_a_report_without_differences_reads_nothing(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    verifier.run()
    verifier.assert_passed(verifier.verify())
    refused = {"errorCode": 13, "failCommands": ["find"]}
    with failing(pair.destination.client, refused):
        unread = verifier.get("report").json()["report"]["notKnown"]
    assert not any("cannot be read" in each for each in unread)


def test_mismatches_are_paged(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_many({"_id": {"$lt": 25}})
    verifier.run()
    assert verifier.verify()["verdict"] == "failed"
    every = verifier.lines("docMismatches")
    assert sorted(line["_id"] for line in every) == [*range(25)]
    paged: list[dict[str, Any]] = []
    while page := verifier.lines("docMismatches", limit=10, **after(paged)):
        paged.extend(page)
    assert paged == every
    assert verifier.lines("docMismatches", minDurationSecs=3600) == []
    bad = verifier.get("docMismatches", after="nonsense")
    assert (bad.status_code, bad.json()["error"]) == (400, "InvalidRequest")


def after(lines: list[dict[str, Any]]) -> dict[str, str]:
    return {"after": lines[-1]["place"]} if lines else {}


def test_a_check_starts_immediately_with_the_flag(pair: Pair, tmp_path: Path) -> None:
    fill(pair)
    process = Verifier(
        pair.source.uri, pair.destination.uri, tmp_path, "--verifyAll", "--start", "--metaDBName",
        "__mdb_internal_mine",
    )  # fmt: skip
    with process.running():
        process.writes_off()
        process.assert_passed(process.wait_for_verdict())
        assert process.terminate() == 0
    assert "__mdb_internal_mine" in pair.destination.client.list_database_names()


def test_saved_state_is_dropped_with_the_flag_clean(pair: Pair) -> None:
    fill(pair)
    pair.destination.client[STATE].check.insert_one({"_id": "check", "format": -1})
    done = check_once(pair)
    assert done.returncode == 2 and "IncompatibleMetadata" in done.stderr
    assert check_once(pair, "--verifyAll", "--clean").returncode == 0


def test_mismatches_are_shown_immediately_after_a_restart(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_many({"_id": {"$lt": 3}})
    verifier.run()
    verifier.check()
    verifier.wait_for_generation(1)
    verifier.kill()
    with verifier.held_at(Point.LISTED):
        verifier.run()
        summary = verifier.get("summary").json()
    assert summary["verdict"] is None
    assert summary["docMismatches"]["byType"]["missingOnDst"] == 3


def test_the_figures_of_a_first_comparison_survive_a_kill(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_many({"_id": {"$lt": 3}})
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("view", viewOn="c")
    with verifier.held_at(Point.GENERATION_DONE, "0"):
        verifier.run()
        verifier.check()
        verifier.wait_until_reached(Point.GENERATION_DONE, "0")
        before = _figures(verifier)
        verifier.kill()
    with verifier.held_at(Point.LISTED):
        verifier.run()
        assert _figures(verifier) == before, "before the check continues"
        verifier.kill()
    (verifier.folder / f"reached-{slug(Point.GENERATION_DONE, '0')}-1").unlink()
    with verifier.held_at(Point.GENERATION_DONE, "0"):
        verifier.run()
        verifier.wait_until_reached(Point.GENERATION_DONE, "0")
        assert _figures(verifier) == before, "after the check has continued"
    assert before["documents"] == (101, 3)


def _figures(verifier: Verifier) -> dict[str, Any]:
    report = verifier.get("report").json()["report"]
    compared, differences = report["compared"], report["differences"]
    return {
        "documents": (compared["documents"], differences["documents"]),
        "collections": (compared["namespaces"], report["namespaces"]["listed"]),
        "definitions": differences["definitions"],
    }


def test_the_report_survives_restarts(verifier: Verifier, pair: Pair, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    fill(pair)
    pair.source.client.d[hostile].insert_many({"_id": n} for n in range(200))
    pair.destination.client.d.create_collection(hostile)
    verifier.run()
    assert verifier.get("report").json()["error"] == "NoCheck"
    verifier.check()
    verifier.wait_for_generation(1)
    preliminary = verifier.get("report").json()["report"]
    assert (preliminary["headline"]["level"], preliminary["check"]["verdict"]) == ("info", None)
    assert preliminary["compared"]["documents"] >= 101
    verifier.kill()
    verifier.run()
    verifier.writes_off()
    verifier.wait_for_verdict()
    before = verifier.get("report").json()["report"]
    assert (before["check"]["verdict"], before["differences"]["documents"]) == ("failed", 200)
    assert [each["command"] for each in before["commands"]] == ["check", "writesOff"]
    assert {each["address"] for each in before["commands"]} == {"127.0.0.1"}
    assert [each["version"] for each in before["processes"]] == [__version__] * 2
    assert len(before["differences"]["listed"]) == 100
    compared = {each["namespace"]: each["documents"] for each in before["namespaces"]["listed"]}
    assert compared == {f"d.{hostile}": 200, "d.c": 100, "d.v": 1}, "also those of a killed process"
    assert verifier.terminate() == 0
    verifier.run()
    after_restart = verifier.get("report").json()["report"]
    names = ("headline", "check", "commands", "processes", "compared", "differences", "namespaces")
    for name in names:
        assert after_restart[name] == before[name], name
    target = tmp_path / "report.html"
    tool = [
        sys.executable,
        "-m",
        "syncsvc.ctl",
        "--verifier-url",
        f"http://127.0.0.1:{verifier.port}",
    ]
    subprocess.run([*tool, "verifier", "report", "-o", str(target)], check=True, cwd=ROOT)
    html = target.read_text()
    assert "The check has failed" in html and "<img" not in html and "&lt;img src=x" in html
    assert len(html) < 100_000


def test_metrics_can_be_read(verifier: Verifier, pair: Pair) -> None:
    fill(pair)
    pair.destination.client.d.c.delete_many({"_id": {"$lt": 3}})
    verifier.run()
    assert scrape(verifier) == {
        "verifier_phase": {("idle",): 1, ("check",): 0, ("recheck",): 0},
    }
    verifier.verify()
    before = scrape(verifier)
    assert before["verifier_verdict"] == {("passed",): 0, ("failed",): 1, ("incomplete",): 0}
    assert before["verifier_compared_documents"] == {(): 101}
    assert before["verifier_document_mismatches"][("missingOnDst",)] == 3
    assert verifier.terminate() == 0
    verifier.run()
    after_restart = scrape(verifier)
    for name in ("verdict", "compared_documents", "document_mismatches", "rechecked_time_seconds"):
        assert after_restart[f"verifier_{name}"] == before[f"verifier_{name}"]


def test_the_api_listens_on_localhost_only(verifier: Verifier) -> None:
    verifier.run()
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    addresses = {line.split()[1] for line in listening if line.split()[3] == "0A"}
    port = f"{verifier.port:04X}"
    assert {each for each in addresses if each.endswith(f":{port}")} == {f"0100007F:{port}"}


@pytest.mark.full
@pytest.mark.slow
def test_documented_roles_suffice_and_a_missing_one_is_named() -> None:
    reading = ["readAnyDatabase", "clusterMonitor", "backup"]
    state: list[Any] = [{"role": role, "db": STATE} for role in ("readWrite", "dbAdmin")]
    with (
        ReplicaSet(name="s", access_control=True) as source,
        ReplicaSet(name="d", access_control=True) as destination,
    ):
        clusters = (source, destination)
        for each in clusters:
            with each.client() as client:
                client.d.c.insert_many([{"_id": number} for number in range(10)])
                client.d.create_collection("t", timeseries={"timeField": "at"})
        with destination.client() as client:
            client.admin.command({"setUserWriteBlockMode": 1, "global": True})
        reader, other = (each.create_user("reader", reading) for each in clusters)
        keeper = destination.create_user("keeper", [*reading, *state, "restore"])
        blocked = destination.create_user("blocked", [*reading, *state])
        lean = source.create_user("lean", ["readAnyDatabase", "clusterMonitor"])
        exact, exact_keeper = (_with_custom_roles(each) for each in clusters)
        poor = source.create_user("poor", ["clusterMonitor"])
        blind = source.create_user("blind", ["readAnyDatabase", "backup"])
        assert _checked(reader, keeper).returncode == 0
        assert _checked(reader, other, "--metaURI", keeper).returncode == 0
        assert _checked(lean, keeper).returncode == 0
        assert _checked(exact, exact_keeper).returncode == 0
        for uris, names in (
            ((poor, keeper), ("NotAuthorized", "source", "readAnyDatabase")),
            ((blind, keeper), ("NotAuthorized", "source", "clusterMonitor")),
            ((reader, other), ("NotAuthorized",)),
            ((reader, blocked), ("MetadataBlocked", "bypassWriteBlockingMode")),
        ):
            done = _checked(*uris)
            assert done.returncode == 2
            assert all(name in done.stderr for name in names), done.stderr


def _with_custom_roles(cluster: ReplicaSet) -> str:
    """Create a user with the documented custom roles, without optional privileges, and return its connection string."""
    with cluster.client() as client:
        evaluate(creation("reader", of_verifier()), client)
        evaluate(creation("state", of_state()), client)
    return cluster.create_user("exact", ["reader", "state"])


def _checked(source: str, destination: str, *more: str) -> subprocess.CompletedProcess[str]:
    uris = ("--srcURI", source, "--destURI", destination)
    return run(*uris, "--verifyAll", "--checkOnce", "--graceSeconds", "0", *more)
