"""Declares a sync's state in a file: the daemon must bring the sync to this state, and a restart changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.failpoints import APPLICATION, failing
from tests.support.pair import Pair
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members

_BAD_VALUE = 2


class Declared:
    """A pair of clusters, and a daemon whose configuration declares the state of the sync."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair, self._folder = pair, folder
        self._start = folder / "start.yaml"
        self._config = folder / "config.yaml"
        self._has_run = False
        self.daemon = Daemon(
            pair.source.uri,
            pair.destination.uri,
            folder,
            *("--config", str(self._config)),
        )

    def declare(self, state: str, **options: Any) -> None:
        """Start or restart the daemon with this declared state and these start options."""
        self._start.write_text(json.dumps(self.daemon.start_body(**options)))
        self._config.write_text(f"desiredState: {state}\nstartFile: {self._start}\n")
        if self._has_run and self.daemon.exit_status is None:
            self.daemon.terminate()
        self._has_run = True
        self.daemon.run()

    def restart(self) -> None:
        if self.daemon.exit_status is None:
            self.daemon.kill()
        self.daemon.run()

    def refuses(self, command: str, body: Any = None) -> bool:
        answer = self.daemon.post(command, body)
        return (answer.status_code, answer.json().get("error")) == (
            409,
            "ContradictsDesiredState",
        )

    def own_commands(self) -> list[str]:
        """Return the commands that the daemon itself has run successfully to reach the declared state, newest first."""
        commands = self.daemon.get("overview").json()["overview"]["recentCommands"]
        return [
            each["command"]
            for each in commands
            if (each["caller"], each["success"]) == ("desiredState", True)
        ]

    def audited_errors(self) -> list[str]:
        """Return the errors of the refused and failed commands in the audit log."""
        lines = (self.daemon.folder / "log" / "audit.log").read_text().splitlines()
        return [line["error"] for line in map(json.loads, lines) if line.get("error")]


@pytest.fixture
def declared(pair: Pair, tmp_path: Path) -> Any:
    declared = Declared(pair, tmp_path)
    try:
        yield declared
    finally:
        declared.daemon.close()


def test_a_sync_follows_the_declared_state_to_the_commit(declared: Declared) -> None:
    daemon, pair = declared.daemon, declared.pair
    writes.fill(pair.source.client)
    declared.declare("paused")
    assert daemon.progress()["state"] == "IDLE"
    assert declared.refuses("start", daemon.start_body())

    declared.declare("running")
    daemon.wait_until_committable()
    assert daemon.progress()["desiredState"] == "running"
    assert declared.refuses("pause")
    assert declared.refuses("reset", {"confirm": "cluster1"})
    declared.restart()
    daemon.wait_until_committable()

    declared.declare("paused")
    daemon.wait_for_state("PAUSED")
    writes.single_document_writes(pair.source.client)
    assert declared.refuses("resume")
    declared.restart()
    assert daemon.progress()["state"] == "PAUSED"

    declared.declare("committed")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert declared.own_commands() == ["commit", "resume"]
    audit = (daemon.folder / "log" / "audit.log").read_text().splitlines()
    # All processes write to the same log.
    newest = [json.loads(each).get("command") for each in audit[-4:]]
    assert newest == 2 * ["resume"] + 2 * ["commit"]

    declared.restart()
    assert daemon.progress()["state"] == "COMMITTED"
    assert declared.refuses("reverse")
    assert declared.own_commands() == []


@pytest.mark.in_turns
@pytest.mark.parametrize("point", [Point.LISTED, Point.BATCH_WRITTEN, Point.EVENTS_APPLIED])
def test_a_declared_sync_survives_kills(declared: Declared, point: Point) -> None:
    daemon, pair = declared.daemon, declared.pair
    writes.fill(pair.source.client)
    daemon.kill_at(point)
    declared.declare("running")
    if point is Point.EVENTS_APPLIED:
        daemon.wait_until_applying()
        writes.single_document_writes(pair.source.client)
    daemon.wait_until_killed()
    declared.declare("committed")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_a_declared_commit_that_failed_is_not_repeated_under_the_applications(
    declared: Declared,
) -> None:
    """Follow the next step after a failed commit: the repaired sync must not commit again by itself."""
    daemon, pair = declared.daemon, declared.pair
    writes.fill(pair.source.client)
    daemon.judge_soon()
    declared.declare("running")
    daemon.wait_until_committable()
    extra = {"insert": "c", "documents": [{"_id": "extra"}], "mayBypassWriteBlocking": True}
    pair.destination.client.d.command(extra)
    declared.declare("committed")
    assert daemon.wait_for_state("FAILED")["error"] == "VerificationFailed"
    # The failure is shown before it is saved.
    wait_for(
        lambda: "can stay on the source" in daemon.overview()["next"]["text"],
        "the failure is saved",
    )
    step = daemon.overview()["next"]
    assert "First set desiredState to running and restart the daemon." in step["text"]
    assert step["command"] is None

    declared.declare("running")
    step = daemon.overview()["next"]
    assert (step["command"], "declare" in step["text"]) == ("repair", False)
    assert daemon.post("repair", {}).ok
    daemon.wait_until_committable()
    assert declared.own_commands() == []
    declared.declare("committed")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_a_refused_start_is_shown_and_repeated(declared: Declared) -> None:
    daemon, pair = declared.daemon, declared.pair
    writes.fill(pair.source.client)
    pair.destination.client.d.left_over.insert_one({"_id": 1})
    declared.declare("committed")
    daemon.wait_for_warning("DestinationNotEmpty")
    # The warning appears only after the start was repeated, but the audit log records no repetitions.
    assert declared.audited_errors() == ["DestinationNotEmpty"]
    pair.destination.client.drop_database("d")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    daemon.wait_without_warning("DestinationNotEmpty")


@pytest.mark.full
def test_an_unexpected_error_does_not_end_the_process(declared: Declared) -> None:
    """Make the destination refuse the run record with an error that the daemon does not know."""
    daemon, pair = declared.daemon, declared.pair
    writes.fill(pair.source.client)
    daemon.warn_soon()
    refused = {"failCommands": ["insert"], "appName": APPLICATION, "errorCode": _BAD_VALUE}
    with failing(pair.destination.client, refused):
        declared.declare("committed")
        daemon.wait_for_warning("InternalError")
    assert declared.audited_errors() == ["InternalError"]
    assert daemon.log.count("A command that desiredState requires failed because of a bug") == 1
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_a_declaration_of_another_sync_changes_nothing(declared: Declared) -> None:
    daemon, pair = declared.daemon, declared.pair
    writes.fill(pair.source.client)
    declared.declare("running")
    daemon.wait_until_committable()
    declared.declare("committed", reversible=True)
    daemon.wait_for_warning("differ from those in startFile")
    assert daemon.progress()["state"] == "RUNNING"
    declared.declare("committed")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
