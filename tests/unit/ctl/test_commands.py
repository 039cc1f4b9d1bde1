"""Tests what each command of `syncctl` sends, prints and returns. The answers of the API are prepared."""

from __future__ import annotations

import gzip
import json
import os
import resource
import ssl
import stat
import subprocess
import sys
import tarfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner
from rich.console import Console

from syncsvc.ctl import archive
from syncsvc.ctl.cli import syncctl
from syncsvc.ctl.client import system_authorities
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.tables import namespaces_view
from syncsvc.rules.repairing import Action
from tests.support.service_process import free_port
from tests.support.stub_api import StubApi, stub_api
from tests.unit.ctl.conftest import Run
from tests.unit.ctl.progress import (
    CHECKING,
    COMMITTABLE,
    COMMITTED,
    COMMITTING,
    COPYING,
    DIFFERENT,
    FAILED,
    IDLE,
    INCOMPLETE,
    NO_CHECK,
    PASSED,
    WRITABLE,
    answer,
)
from verifier.runtime.channel import error_body

SUCCESS = {"success": True}
ESTIMATES = {
    "namespaces": 3,
    "documents": 1_000,
    "bytes": 5_000_000,
    "indexes": 2,
    "diskNeededBytes": 10_000_000,
    "diskFreeBytes": None,
    "memoryNeededBytes": None,
    "memoryAvailableBytes": 10**9,
    "copySeconds": 7_200,
    "oplogWindowSeconds": 3_600,
}
PREFLIGHT = {"violations": [], "warnings": [], "estimates": ESTIMATES, **SUCCESS}
VIOLATION = {"error": "NotAuthorized", "errorDescription": "A privilege is missing."}
NAMESPACE = {
    "namespace": "shop.orders",
    "phase": "copying",
    "copiedDocuments": 50,
    "estimatedTotalDocuments": 100,
    "copiedBytes": 500,
    "estimatedTotalBytes": 1_000,
    "documentsPerSecond": 5.0,
    "bytesPerSecond": 50.0,
    "eventsApplied": 0,
    "indexesBuilt": None,
    "totalIndexes": 1,
    "verification": None,
}
DOCUMENT = {
    "type": "content",
    "namespace": "shop.orders",
    "_id": {"$oid": "65a0c3f1e4b0a1b2c3d4e5f6"},
    "idType": "objectId",
    "fields": [{"path": "price", "detail": "int 5 against double 5.0"}],
    "generation": 4,
    "durationSecs": 42.0,
    "place": "b7f0",
}
DEFINITION = {
    "type": "missingOnDst",
    "namespace": "shop.items",
    "aspect": "index",
    "component": "sku_1",
    "detail": "",
    "generation": 4,
    "durationSecs": 192.0,
    "place": "51d4",
}
SUMMARY = {
    "verdict": "passed",
    "verdictReasons": [],
    "checkStats": CHECKING["generationStats"],
    "docMismatches": {"total": 0},
    "nsMismatchesTotal": 0,
    "notes": ["views were not compared"],
}


@pytest.mark.parametrize(
    "progress, status, shown",
    [
        (IDLE, Exit.OK, "syncctl preflight"),
        (COPYING, Exit.OK, "25 %, 500.0 kB of 2.0 MB"),
        (COMMITTABLE, Exit.OK, "12,345 applied, lag 0 s"),
        (COMMITTED, Exit.OK, "applications may write to the destination"),
        (FAILED, Exit.FAILED, "EventNotApplicable: The destination refuses a change."),
    ],
)
def test_status_shows_the_state_and_the_next_step(
    api: StubApi, run: Run, progress: dict[str, Any], status: Exit, shown: str
) -> None:
    api.answer("progress", answer(progress))
    done = run("status")
    assert (done.exit_code, done.stderr) == (status, "")
    assert shown in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Next: ")


def test_an_instance_that_knows_only_its_own_copy_shows_no_share(api: StubApi, run: Run) -> None:
    copied = {**COPYING["collectionCopy"], "estimatedCopiedBytesInAll": None}
    api.answer("progress", answer({**COPYING, "collectionCopy": copied}))
    shown = run("status").stdout
    assert "500.0 kB by this instance, of 2.0 MB in all" in shown and "%" not in shown


@pytest.mark.parametrize(
    "fields, text",
    [
        ({}, "begins, or continues after a restart, when the destination has caught up"),
        ({"state": "COMMITTED"}, "saved results are in the report: syncctl report"),
        ({"mongosyncID": "b", "coordinatorID": "a"}, "shown only by the coordinator a"),
    ],
)
def test_a_process_without_figures_of_the_verification_says_why(
    api: StubApi, run: Run, fields: dict[str, Any], text: str
) -> None:
    api.answer("progress", answer({**COPYING, **fields}))
    (line,) = [each for each in run("status").stdout.splitlines() if "verification" in each]
    assert line.endswith(text)


@pytest.mark.parametrize(
    "state, active, size, text",
    [
        ("RUNNING", True, 5, "5 bytes of 10 bytes, saving changes"),
        ("RUNNING", True, 10, "10 bytes of 10 bytes, full: no changes are saved"),
        ("RUNNING", False, 5, "5 bytes of 10 bytes, being read"),
        ("FAILED", False, 5, "5 bytes of 10 bytes"),
    ],
)
def test_the_event_spool_is_described(
    api: StubApi, run: Run, state: str, active: bool, size: int, text: str
) -> None:
    spool = {"active": active, "bytes": size, "limitBytes": 10}
    api.answer("progress", answer({**COPYING, "state": state, "eventSpool": spool}))
    (line,) = [each for each in run("status").stdout.splitlines() if "event spool" in each]
    assert line.endswith(f" {text}")


def test_after_a_commit_the_daemon_says_what_to_do(api: StubApi, run: Run) -> None:
    step = {"text": "You can reverse the sync.", "command": None, "body": None}
    api.answer("progress", answer(COMMITTED))
    api.answer("overview", {"overview": {"next": step}, **SUCCESS})
    assert "\nNext: You can reverse the sync. To keep the report: " in run("status").stdout


@pytest.mark.parametrize(
    "progress", [IDLE, {**COPYING, "state": "PAUSED"}, COPYING], ids=lambda each: each["state"]
)
@pytest.mark.parametrize("command", ["status", "preflight", "pause"])
def test_with_a_declared_state_the_daemon_says_what_to_do(
    api: StubApi, run: Run, progress: dict[str, Any], command: str
) -> None:
    declared = {**progress, "desiredState": "paused"}
    step = {"text": "Set desiredState to running.", "command": None, "body": None}
    api.answer("progress", answer(declared))
    api.answer("preflight", PREFLIGHT)
    api.answer("pause", SUCCESS)
    api.answer("overview", {"overview": {"next": step, "progress": declared}, **SUCCESS})
    shown = run(command).stdout
    assert shown.splitlines()[-1] == "Next: Set desiredState to running."
    assert ("desiredState paused" in shown) == (command == "status")


@pytest.mark.parametrize("arguments", [["status"], ["watch"], ["commit", "--dry-run"]])
def test_after_a_failure_the_daemon_says_what_to_do(
    api: StubApi, run: Run, arguments: list[str]
) -> None:
    step = {"text": "This sync cannot be resumed. Reset it.", "command": "reset", "body": {}}
    api.answer("progress", answer(FAILED))
    api.answer("overview", {"overview": {"next": step}, **SUCCESS})
    done = run(*arguments)
    assert (done.exit_code, done.stderr) == (Exit.FAILED, "")
    assert done.stdout.splitlines()[-1] == (
        "Next: This sync cannot be resumed. Reset it: syncctl reset"
    )


@pytest.mark.parametrize(
    "progress, step",
    [
        (COPYING, "syncctl watch --until canCommit"),
        (COMMITTING, "syncctl watch --until canWrite"),
        ({**COPYING, "state": "RESETTING"}, "syncctl watch --until idle"),
        # The sync has failed again.
        (FAILED, "look up the error in docs/reference/errors."),
        (None, "syncctl status"),
    ],
)
def test_the_step_after_a_resume_fits_the_work_that_continues(
    api: StubApi, run: Run, progress: dict[str, Any] | None, step: str
) -> None:
    api.answer("resume", SUCCESS)
    if progress is not None:
        api.answer("progress", answer(progress))
    done = run("resume")
    assert (done.exit_code, done.stderr) == (Exit.OK, "")
    assert done.stdout.splitlines()[-1].endswith(step)


@pytest.mark.parametrize("arguments", [["status", "--json"], ["verifier", "status", "--json"]])
def test_json_is_that_of_the_api(api: StubApi, run: Run, arguments: list[str]) -> None:
    both = {**COPYING, **PASSED, "warnings": ["odd\x1b[2J"]}
    text = json.dumps(answer(both), indent=1)
    api.answer("progress", text)
    assert run(*arguments).stdout == f"{text}\n"


def test_a_refusal_is_shown_and_fails(api: StubApi, run: Run) -> None:
    api.refuse("pause", "InvalidState")
    done = run("pause")
    assert (done.exit_code, done.stdout) == (Exit.FAILED, "")
    assert done.stderr == "InvalidState: Because of InvalidState.\n"
    done = run("pause", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]) == (Exit.FAILED, "InvalidState")


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_request_has_its_own_status(api: StubApi, run: Run, status: int) -> None:
    api.refuse("progress", "TokenRequired", status)
    assert run("status").exit_code == Exit.DENIED


def test_an_invalid_request_file_is_a_wrong_usage(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.refuse("start", "InvalidRequest", 400)
    (tmp_path / "start.yaml").write_text("source: cluster0\nfast: true")
    done = run("start", "-f", str(tmp_path / "start.yaml"))
    assert done.exit_code == Exit.USAGE
    assert api.bodies("start") == [{"source": "cluster0", "fast": True}]


def test_a_daemon_that_does_not_answer_is_unreachable(run: Run) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run("status", "--url", url)
    assert done.exit_code == Exit.UNREACHABLE
    assert url in done.stderr and "Connection refused" in done.stderr
    done = run("--url", url, "status", "--json")
    assert json.loads(done.stdout)["error"] == "Unreachable"
    done = run("verifier", "status", "--verifier-url", url)
    assert "systemctl status syncsvc-verifier" in done.stderr


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://host:port", "http://u:p@host", "http://host?x=1"]
)
def test_a_wrong_address_is_a_wrong_usage(run: Run, url: str) -> None:
    assert run("--url", url, "status").exit_code == Exit.USAGE


@pytest.mark.parametrize("text", ["<html>hello</html>", '{"progress": {}}', "[]", "{}"])
def test_another_program_at_the_address_is_noticed(api: StubApi, run: Run, text: str) -> None:
    api.answer("progress", text)
    done = run("status")
    assert done.exit_code == Exit.UNREACHABLE
    assert "UnexpectedAnswer" in done.stderr


def test_a_verifier_is_no_sync_service(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(PASSED))
    done = run("status")
    assert done.exit_code == Exit.UNREACHABLE
    assert "is not a sync service" in done.stderr


def test_a_sync_service_is_no_verifier(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COPYING))
    done = run("verifier", "status")
    assert done.exit_code == Exit.UNREACHABLE
    assert "is not a verifier" in done.stderr


def test_a_token_is_sent(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.answer("progress", answer(IDLE))
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    run("status", SYNCCTL_TOKEN_FILE=str(file))
    run("--token-file", str(file), "status")
    run("status", "--token-file", str(file))
    run("status")
    sent = [each.headers.get("Authorization") for each in api.requests]
    # Each command asks for the progress and the overview.
    assert sent == ["Bearer s3cret"] * 6 + [None] * 2


@pytest.mark.parametrize("text", ["", "two words", "caf\u00e9", "a\nb"])
def test_a_file_without_a_token_is_a_wrong_usage(
    api: StubApi, run: Run, tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text)
    done = run("--token-file", str(tmp_path / "token"), "status")
    assert (done.exit_code, api.requests) == (Exit.USAGE, [])


def test_a_token_is_not_sent_over_an_open_network(run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    done = run("--url", "http://host.invalid:1", "--token-file", str(tmp_path / "token"), "status")
    assert done.exit_code == Exit.USAGE
    assert "https://" in done.stderr and "s3cret" not in done.stderr


def test_a_secure_daemon_needs_a_known_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "token").write_text("s3cret")
    with stub_api(context) as stub:
        stub.answer("progress", answer(IDLE))
        options = ["status", "--url", stub.url, "--token-file", str(tmp_path / "token")]
        done = CliRunner().invoke(syncctl, options)
        assert done.exit_code == Exit.UNREACHABLE
        assert "TLSFailed" in done.stderr and "--ca-file" in done.stderr
        done = CliRunner().invoke(syncctl, [*options, "--ca-file", str(tmp_path / "ca.pem")])
        assert done.exit_code == Exit.OK
        assert {each.headers["Authorization"] for each in stub.requests} == {"Bearer s3cret"}
        # These variables of OpenSSL choose the authorities that the system trusts.
        for name, status in (("ca.pem", Exit.OK), ("none", Exit.UNREACHABLE)):
            system = {"SSL_CERT_FILE": str(tmp_path / name), "SSL_CERT_DIR": str(tmp_path / "none")}
            assert CliRunner().invoke(syncctl, options, env=system).exit_code == status


def test_the_folder_with_the_authorities_of_the_system_is_used_if_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert system_authorities() is True
    (tmp_path / "0123abcd.0").touch()
    assert system_authorities() == str(tmp_path)


def test_names_from_a_cluster_do_not_control_the_terminal(api: StubApi, run: Run) -> None:
    hostile = {**NAMESPACE, "namespace": "d.[bold]\x1b]0;x\x07<img>\u202e"}
    api.answer("namespaces", {"namespaces": [hostile], "next": None, **SUCCESS})
    shown = run("namespaces").stdout
    assert "d.[bold]\\x1b]0;x\\x07<img>\\u202e" in shown
    assert "\x1b" not in shown


def test_namespaces_are_paged_filtered_and_sorted(api: StubApi, run: Run) -> None:
    done = {**NAMESPACE, "namespace": "a.done", "phase": "copied", "copiedBytes": 1_000}
    large = {**NAMESPACE, "namespace": "z.large", "estimatedTotalBytes": 9_000}
    pages = (
        {"namespaces": [done, NAMESPACE], "next": "shop.orders", **SUCCESS},
        {"namespaces": [large], "next": None, **SUCCESS},
    )
    api.answer("namespaces", *pages)
    lines = run("namespaces", "--phase", "copying", "--sort", "left", "--limit", "1").stdout
    assert "z.large" in lines and "shop.orders" not in lines and "a.done" not in lines
    assert "1 of 2 collections; --limit shows more." in lines
    assert "after=shop.orders" in api.requests[1].path


def test_namespaces_fit_into_a_narrow_terminal() -> None:
    printed = StringIO()
    Console(file=printed, width=40).print(namespaces_view([NAMESPACE], 40))
    assert "namespace" in printed.getvalue() and "shop.orders" in printed.getvalue()


def test_an_output_that_cannot_be_written_has_its_own_status(api: StubApi) -> None:
    api.answer("progress", answer(COPYING))
    command = [sys.executable, "-m", "syncsvc.ctl", "--url", api.url, "status"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (Exit.UNREACHABLE, 1)
    assert "No space left on device" in done.stderr and "syncctl status" in done.stderr


def test_a_preflight_with_violations_fails(api: StubApi, run: Run) -> None:
    warned = {**PREFLIGHT, "violations": [VIOLATION], "warnings": ["The oplog is short."]}
    api.answer("preflight", PREFLIGHT, warned)
    done = run("preflight")
    assert done.exit_code == Exit.OK
    assert "A start would succeed." in done.stdout and "estimated time: 2 h" in done.stdout
    done = run("preflight")
    assert done.exit_code == Exit.FAILED
    assert "NotAuthorized: A privilege is missing." in done.stdout
    assert "The oplog is short." in done.stdout
    assert api.bodies("preflight")[0] == {"source": "cluster0", "destination": "cluster1"}


@pytest.mark.parametrize(
    "progress, arguments, status",
    [
        (COMMITTABLE, [], Exit.OK),
        (COMMITTABLE, ["--max-lag", "0"], Exit.OK),
        ({**COMMITTABLE, "lagTimeSeconds": 3}, ["--max-lag", "2"], Exit.NOT_YET),
        (COPYING, [], Exit.NOT_YET),
        (IDLE, [], Exit.FAILED),
        (COMMITTED, [], Exit.FAILED),
    ],
)
def test_a_dry_run_tells_whether_a_commit_is_possible(
    api: StubApi, run: Run, progress: dict[str, Any], arguments: list[str], status: Exit
) -> None:
    api.answer("progress", answer(progress))
    done = run("commit", "--dry-run", *arguments)
    assert done.exit_code == status
    assert ("is possible now" in done.stdout) == (status is Exit.OK)
    # Without --dry-run, the same obstacles refuse the commit before it is sent.
    if status is not Exit.OK:
        assert run("commit", "--yes", *arguments).exit_code == status
    assert api.bodies("commit") == []


def test_a_commit_without_a_terminal_needs_yes(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.answer("commit", SUCCESS)
    done = run("commit")
    assert (done.exit_code, api.bodies("commit")) == (Exit.USAGE, [])
    assert "--yes" in done.stderr
    done = run("commit", "--yes")
    assert (done.exit_code, api.bodies("commit")) == (Exit.OK, [{}])
    assert "--until canWrite" in done.stdout


def test_a_commit_waits_for_the_end(api: StubApi, run: Run) -> None:
    steps = (COPYING, COPYING, COMMITTABLE, COMMITTING, WRITABLE, COMMITTED)
    api.answer("progress", *map(answer, steps))
    api.answer("commit", SUCCESS)
    done = run("commit", "--wait", "--yes")
    assert done.exit_code == Exit.OK
    sent = [each.path.rpartition("/")[2] for each in api.requests]
    assert sent[: sent.index("commit")].count("progress") == 3
    assert "Applications may write to the destination now." in done.stdout
    assert "COMMITTED" in done.stdout


def several(progress: dict[str, Any], text: str = "", command: str | None = None) -> dict[str, Any]:
    """Return an overview of a sync that two instances share; `text` and `command` are its next step."""
    step = {"text": text, "command": command, "body": None} if text else None
    instances = [{"name": "a"}, {"name": "b"}]
    found = {"progress": progress, "next": step, "commands": [], "instances": instances}
    return {"overview": found, **SUCCESS}


@pytest.mark.parametrize("arguments", [["status"], ["commit", "--dry-run"]])
def test_with_several_instances_the_daemon_says_what_to_do(
    api: StubApi, run: Run, arguments: list[str]
) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.answer("overview", several(COMMITTABLE, "Send the commit to a and b.", "commit"))
    shown = run(*arguments).stdout
    assert shown.splitlines()[-1] == "Next: Send the commit to a and b: syncctl commit"
    assert "--wait" not in shown


def test_with_several_instances_the_next_step_is_to_send_the_command_to_the_others(
    api: StubApi, run: Run
) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.answer("overview", several(COMMITTABLE))
    for command in ("start", "commit", "reverse", "reset"):
        api.answer(command, SUCCESS)
    for arguments in (
        *(["start"], ["commit", "--yes"], ["reverse"], ["reset", "--confirm", "cluster1"]),
    ):
        last = run(*arguments).stdout.splitlines()[-1]
        assert last.startswith(
            "Next: send the same command to every other instance, too; then wait"
        )


@pytest.mark.parametrize(
    "command, which, then",
    [
        ("pause", "every other instance, too", "keep all daemons running"),
        ("resume", "every other instance that is PAUSED or FAILED", "see the next step: syncctl"),
        ("repair", "every other instance that is FAILED", "wait until a commit is possible"),
    ],
)
def test_with_several_instances_a_command_of_one_is_not_one_of_the_sync(
    api: StubApi, run: Run, command: str, which: str, then: str
) -> None:
    api.answer("overview", several(COMMITTABLE))
    api.answer(command, SUCCESS)
    last = run(command).stdout.splitlines()[-1]
    assert last.startswith(f"Next: send the same command to {which}; then {then}")


def test_a_wait_says_that_the_other_instances_need_the_commit(api: StubApi, run: Run) -> None:
    api.answer("progress", *map(answer, (COMMITTABLE, COMMITTABLE, COMMITTING, COMMITTED)))
    api.answer("overview", several(COMMITTABLE))
    api.answer("commit", SUCCESS)
    shown = run("commit", "--wait", "--yes").stdout
    assert "Next: send the same command to every other instance, too; then the commit" in shown


def test_a_wait_sends_a_refused_commit_again(api: StubApi, run: Run) -> None:
    api.answer("progress", *map(answer, (COMMITTABLE, COMMITTABLE, COMMITTED)))
    api.refuse("commit", "CannotCommit")
    api.answer("commit", SUCCESS)
    assert run("commit", "--wait", "--yes").exit_code == Exit.OK
    assert api.bodies("commit") == [{}, {}]


@pytest.mark.parametrize(
    "steps",
    [
        (COMMITTING, WRITABLE, COMMITTED),
        # Another operator commits, or an earlier call of this command has done so.
        (COPYING, COMMITTING, COMMITTED),
        (COPYING, COMMITTED),
        (COMMITTED,),
    ],
)
def test_waiting_for_a_commit_can_be_repeated(
    api: StubApi, run: Run, steps: tuple[dict[str, Any], ...]
) -> None:
    api.answer("progress", *map(answer, steps))
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, api.bodies("commit")) == (Exit.OK, []), done.output
    assert ("already committed" in done.stdout) == (COMMITTING not in steps)


def test_a_commit_without_a_terminal_is_refused_before_the_wait(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COPYING))
    done = run("commit", "--wait", "--timeout", "3")
    assert (done.exit_code, len(api.requests)) == (Exit.USAGE, 1)
    assert "--yes" in done.stderr


@pytest.mark.parametrize("body", ["", "<html>moved</html>", {}])
@pytest.mark.parametrize("status", [200, 301])
def test_only_the_answer_of_a_daemon_is_a_success(
    api: StubApi, run: Run, body: Any, status: int
) -> None:
    api.answer("pause", body, status=status)
    done = run("pause")
    assert done.exit_code in (Exit.UNREACHABLE, Exit.FAILED)
    assert "paused" not in done.stdout


def test_a_refused_commit_without_wait_is_not_yet_possible(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.refuse("commit", "CannotCommit")
    assert run("commit", "--yes").exit_code == Exit.NOT_YET


def test_a_commit_that_cannot_come_does_not_wait(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COPYING), answer(FAILED))
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, api.bodies("commit")) == (Exit.FAILED, [])


@pytest.mark.parametrize(
    "condition, steps, status",
    [
        ("canCommit", (COPYING, COMMITTABLE), Exit.OK),
        ("canWrite", (COMMITTABLE, COMMITTING, WRITABLE), Exit.OK),
        ("committed", (WRITABLE, COMMITTED), Exit.OK),
        ("idle", ({**COPYING, "state": "RESETTING"}, IDLE), Exit.OK),
        ("canCommit", (COPYING, FAILED), Exit.FAILED),
        ("canCommit", (COMMITTED,), Exit.FAILED),
        ("canWrite", (IDLE,), Exit.FAILED),
    ],
)
def test_watch_ends_when_the_condition_holds_or_cannot(
    api: StubApi, run: Run, condition: str, steps: tuple[dict[str, Any], ...], status: Exit
) -> None:
    api.answer("progress", *map(answer, steps))
    done = run("watch", "--until", condition)
    assert done.exit_code == status
    *lines, last = done.stdout.splitlines()
    assert len(lines) >= len(steps) and last.startswith("Next: ")


def test_watch_prints_one_answer_per_step_as_json(api: StubApi, run: Run) -> None:
    steps = (COPYING, COPYING, COMMITTABLE, COMMITTED)
    api.answer("progress", *map(answer, steps))
    lines = run("watch", "--json").stdout.splitlines()
    assert [json.loads(each)["progress"]["state"] for each in lines] == [
        *("RUNNING", "RUNNING", "COMMITTED")
    ]


def test_watch_gives_up_after_the_given_time(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COPYING))
    done = run("watch", "--timeout", "0")
    assert done.exit_code == Exit.NOT_YET
    assert "the watched process continues." in done.stderr


def test_mismatches_are_listed(api: StubApi, run: Run) -> None:
    lines = "".join(f"{json.dumps(each)}\n" for each in (DEFINITION, DOCUMENT))
    api.answer("mismatches", lines)
    shown = run("mismatches", "--limit", "1", "--min-duration", "2").stdout
    assert (
        "index sku_1" in shown
        and "3 min 12 s" in shown
        and "Differences: 1; --limit shows more." in shown
    )
    assert "minDurationSecs=2.0" in api.requests[0].path
    shown = run("mismatches").stdout
    assert 'objectId {"$oid": "65a0c3f1e4b0a1b2c3d4e5f6"}' in shown
    assert "price: int 5 against double 5.0" in shown
    as_json = run("mismatches", "--json").stdout
    assert as_json == lines


REPAIRABLE = {"progress": COMMITTABLE, "commands": ["pause", "commit", "repair"], "next": None}
DECLARED = {
    "progress": FAILED,
    "commands": ["repair"],
    "next": {"text": "First set desiredState to running.", "command": None, "body": None},
}
WAITING = {"progress": COPYING, "commands": ["pause"], "next": None}


@pytest.mark.parametrize(
    "overview, listed, planned",
    [
        (REPAIRABLE, "syncctl repair --dry-run", "syncctl repair"),
        # Only the daemon knows that a repair would let the sync commit by itself.
        (DECLARED, "First set desiredState to running.", "First set desiredState to running."),
        # A repair would be refused.
        (WAITING, *2 * ("wait until a commit is possible: syncctl watch --until canCommit",)),
    ],
)
def test_after_a_list_of_differences_a_repair_is_named_only_if_it_is_the_next_step(
    api: StubApi, run: Run, overview: dict[str, Any], listed: str, planned: str
) -> None:
    api.answer("overview", {"overview": overview, **SUCCESS})
    api.answer("mismatches", f"{json.dumps(DOCUMENT)}\n")
    api.answer("repair", plan("delete the document", "none: change it yourself"))
    assert run("mismatches").stdout.splitlines()[-1] == f"Next: {listed}"
    assert run("repair", "--dry-run").stdout.splitlines()[-1] == f"Next: {planned}"


def test_a_repair_that_changes_nothing_is_not_named(api: StubApi, run: Run) -> None:
    api.answer("overview", {"overview": REPAIRABLE, **SUCCESS})
    api.answer("progress", answer(COMMITTABLE))
    api.answer("mismatches", f"{json.dumps(DOCUMENT)}\n")
    api.answer("repair", plan(*(each.value for each in Action if not each.repairs)))
    for arguments in (["mismatches", "--repaired"], ["repair", "--dry-run"]):
        assert "syncctl commit --wait" in run(*arguments).stdout.splitlines()[-1]


def plan(*actions: str) -> dict[str, Any]:
    repairs = [{"difference": "shop.orders 1 differs", "action": each} for each in actions]
    return {"documents": len(repairs), "definitions": 0, "repairs": repairs, **SUCCESS}


def test_mismatches_show_both_names_of_a_renamed_collection(api: StubApi, run: Run) -> None:
    renamed = {**DOCUMENT, "destinationNamespace": "store.sales"}
    api.answer("mismatches", f"{json.dumps(renamed)}\n")
    assert "shop.orders -> store.sales" in run("mismatches").stdout


def test_an_error_in_the_middle_of_a_list_fails(api: StubApi, run: Run) -> None:
    broken = error_body("ClusterUnreachable", "No answer.")
    api.answer("mismatches", f"{json.dumps(DOCUMENT)}\n{json.dumps(broken)}\n")
    done = run("mismatches")
    assert done.exit_code == Exit.FAILED
    assert "ClusterUnreachable" in done.stderr


def test_a_repair_can_be_planned(api: StubApi, run: Run) -> None:
    api.answer("overview", {"overview": REPAIRABLE, **SUCCESS})
    api.answer("repair", plan("delete the document"))
    shown = run("repair", "--dry-run").stdout
    assert "delete the document" in shown and "syncctl repair" in shown
    run("repair")
    assert api.bodies("repair") == [{"dryRun": True}, {"dryRun": False}]


def test_a_reset_needs_the_name_of_the_destination(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COPYING))
    plan = {"views": [], "kept": [], "unblocked": ["cluster1"], "balancersStarted": []}
    names = [f"d.c{number}" for number in range(60)]
    api.answer("reset", {**plan, "collections": names, **SUCCESS})
    shown = run("reset", "--dry-run").stdout
    assert "d.c0" in shown and "and 10 more" in shown
    assert run("reset").exit_code == Exit.USAGE
    assert run("reset", "--confirm", "cluster1").exit_code == Exit.OK
    assert api.bodies("reset") == [
        {"confirm": "cluster1", "dryRun": True},
        {"confirm": "cluster1"},
    ]


LIMITS = {
    "limits": {
        "copyBytesPerSecond": 20_000_000,
        "eventsPerSecond": None,
        "windows": [
            {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin", "limits": {}},
            {
                "from": "06:00",
                "to": "07:00",
                "timezone": "UTC",
                "limits": {"copyBytesPerSecond": 1_000, "threads": None},
            },
        ],
        "auto": {"enabled": True, "maxQueue": 50, "maxSourceLatencyMS": None},
    },
    "saved": False,
    "effective": {"copyBytesPerSecond": 5_000_000},
    "throttledBy": {"what": "copy", "reason": "latency", "since": "2026-11-23T15:00:00Z"},
    "measured": {
        "source": {"latencyMS": 1.5, "queue": 0, "replicationLagSeconds": None},
        "destination": {"latencyMS": None, "queue": None, "replicationLagSeconds": None},
    },
    **SUCCESS,
}


def test_limits_are_shown_and_changed(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.answer("limits", LIMITS)
    shown = run("limit").stdout
    assert "20.0 MB/s" in shown and "5.0 MB/s" in shown and "copy: latency" in shown
    assert "22:00 to 06:00 Europe/Berlin: no limits\n" in shown
    assert "06:00 to 07:00 UTC: copyBytesPerSecond 1.0 kB/s\n" in shown
    assert "on, maxQueue 50\n" in shown and "not yet: this daemon" in shown
    assert "source load  " in shown and "latency 1.5 ms, queue 0\n" in shown
    assert "destination load" not in shown
    named = {"what": "threads", "reason": "threads is 2.", "since": "2026-11-23T15:00:00Z"}
    api.forget()
    api.answer("limits", {**LIMITS, "throttledBy": named})
    assert "throttled by" in (shown := run("limit").stdout)
    assert "  threads is 2, since 2026-11-23T15:00:00Z\n" in shown
    api.forget()
    api.answer("limits", LIMITS)
    run("limit")
    (tmp_path / "limits.yaml").write_text("auto: {enabled: true}\nthreads: 2")
    changed = ["--copy-bytes", "1.5MB", "--events", "none", "-f", str(tmp_path / "limits.yaml")]
    assert run("limit", *changed).exit_code == Exit.OK
    assert [each.method for each in api.requests] == ["GET", "PATCH"]
    assert api.bodies("limits")[1] == {
        "auto": {"enabled": True},
        "threads": 2,
        "copyBytesPerSecond": 1_500_000,
        "eventsPerSecond": None,
    }
    for wrong in (("--threads", "many"), ("--copy-bytes", "inf"), ("--copy-bytes", "1e999")):
        assert run("limit", *wrong).exit_code == Exit.USAGE


def test_a_daemon_without_limits_is_named(run: Run) -> None:
    done = run("limit", "--events", "5")
    assert done.exit_code == Exit.FAILED
    assert "is an older syncsvc, update it" in done.stderr


def described(version: str) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"version": version}}


def test_the_doctor_examines_daemon_and_clusters(api: StubApi, run: Run) -> None:
    pings = {"source": {"pingLatencyMs": 250}, "destination": {"pingLatencyMs": -1}}
    api.answer("progress", answer({**IDLE, **pings, "warnings": ["A call takes long."]}))
    api.answer("openapi.json", described("99.0"))
    api.refuse("/readyz", "NotReady", 503)
    api.answer("preflight", {**PREFLIGHT, "violations": [VIOLATION], "warnings": ["Slow disk."]})
    done = run("doctor")
    assert done.exit_code == Exit.FAILED
    for text in (
        "warning: The daemon has version 99.0",
        "problem: Because of NotReady",
        "warning: The cluster answered the last ping in 250 ms.",
        "problem: The cluster did not answer the last ping.",
        "problem: NotAuthorized: A privilege is missing.",
        "warning: Slow disk.",
        "warning: A call takes long.",
        "ok: The oplog of the source keeps changes for 1 h, but the copy takes about 2 h. If necessary, the",
    ):
        assert text in done.stdout
    found = json.loads(run("doctor", "--json").stdout)
    assert found["success"] is False
    assert {each["result"] for each in found["checks"]} == {"ok", "warning", "problem"}


@pytest.mark.parametrize(
    "option, result",
    [("auto", "ok"), ("always", "ok"), ("never", "warning")],
)
def test_the_doctor_warns_of_a_short_oplog_only_without_the_event_spool(
    api: StubApi, run: Run, tmp_path: Path, option: str, result: str
) -> None:
    api.answer("progress", answer(IDLE))
    api.answer("openapi.json", described("0.1.0"))
    api.answer("/readyz", SUCCESS)
    api.answer("preflight", PREFLIGHT)
    file = tmp_path / "start.yaml"
    file.write_text(f"eventSpool: {option}")
    checks = json.loads(run("doctor", "--json", "--file", str(file)).stdout)["checks"]
    assert [each["result"] for each in checks if each["name"] == "oplog"] == [result]


def test_the_doctor_does_not_start_a_preflight_of_a_running_sync(api: StubApi, run: Run) -> None:
    lease = {"host": "other", "address": "127.0.0.1:1"}
    api.answer("progress", answer({**COPYING, "role": "standby", "lease": lease}))
    api.answer("openapi.json", described("0.1.0"))
    api.answer("/readyz", SUCCESS)
    done = run("doctor")
    assert done.exit_code == Exit.OK
    assert "The active daemon, according to the lease: other" in done.stdout
    assert api.bodies("preflight") == []


def test_a_diagnosis_holds_no_secret(api: StubApi, run: Run, tmp_path: Path) -> None:
    uri = "mongodb://admin:hunter2@a.example:27017,b.example/?replicaSet=a"
    api.answer("progress", answer({**FAILED, "errorDescription": f"No answer from {uri}."}))
    api.answer("namespaces", {"namespaces": [NAMESPACE], "next": None, **SUCCESS})
    api.answer("/metrics", "mongosync_state 1\n")
    api.answer("preflight", PREFLIGHT)
    log = tmp_path / "log" / "syncsvc.log"
    log.parent.mkdir()
    log.write_text(json.dumps({"message": "Mongosync Options", "cluster0": uri}) + "\n")
    target = tmp_path / "found.tar.gz"
    done = run("diagnose", "--log", str(log.parent), "-o", str(target))
    assert done.exit_code == Exit.OK, done.stderr
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    held = texts_in(target)
    assert not [name for name, text in held.items() if "hunter2" in text]
    assert "a.example:27017" in held[f"found/logs{log}"]
    assert "mongosync_state 1" in held["found/metrics.txt"]
    assert "NotFound" in held["found/limits.json"]
    # An existing file is not replaced.
    assert run("diagnose", "-o", str(target)).exit_code == Exit.USAGE


def test_a_diagnosis_holds_what_was_answered(api: StubApi, run: Run, tmp_path: Path) -> None:
    """While a cluster is slow, the daemon may not answer a preflight in time."""
    api.answer("progress", answer(COMMITTABLE))
    api.break_off("preflight")
    target = tmp_path / "found.tar.gz"
    assert run("diagnose", "-o", str(target)).exit_code == Exit.OK
    held = texts_in(target)
    assert "NoAnswer" in held["found/preflight.json"]
    assert "RUNNING" in held["found/progress.json"]


def test_a_diagnosis_holds_all_collections(api: StubApi, run: Run, tmp_path: Path) -> None:
    other = {**NAMESPACE, "namespace": "shop.returns"}
    pages = (
        {"namespaces": [NAMESPACE], "next": "shop.orders", **SUCCESS},
        {"namespaces": [other], "next": None, **SUCCESS},
    )
    api.answer("namespaces", *pages)
    held, _ = diagnosed(run, tmp_path)
    lines = held["found/namespaces.json"].splitlines()
    assert [json.loads(line)["namespaces"] for line in lines] == [[NAMESPACE], [other]]


@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_an_output_that_does_not_fit_on_the_disk_is_not_kept(
    api: StubApi, run: Run, tmp_path: Path, command: str
) -> None:
    api.answer("report", {"x": "x" * 10_000})
    target = tmp_path / "found"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        done = run(command, "-o", str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (done.exit_code, target.exists()) == (Exit.USAGE, False)
    assert f"{target} cannot be written: File too large." in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("given", [["."], ["a", "b"], ["a", "b/syncsvc.log", "."]])
def test_the_logs_of_several_instances_are_kept_apart(
    api: StubApi, run: Run, tmp_path: Path, given: list[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "syncsvc.log").write_text(f"instance {name}")
    logs = [part for each in given for part in ("--log", str(tmp_path / each))]
    held, _ = diagnosed(run, tmp_path, *logs)
    texts = [text for name, text in held.items() if "/logs/" in name]
    assert sorted(texts) == ["instance a", "instance b"]


def test_rotated_logs_are_collected(run: Run, api: StubApi, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    names = ["syncsvc.log", "syncsvc.log.1", "audit.log-20261127", "syncsvc-2026-11-27T19-40.log"]
    for name in (*names, "syncsvc.logic", "syncsvc.log.1.swp"):
        (logs / name).write_text(name)
    for name in ("syncsvc.log.gz", "syncsvc.log.2.gz", "audit.log-20261120.gz"):
        (logs / name).write_bytes(gzip.compress(name.encode()))
        names.append(name)
    held, _ = diagnosed(run, tmp_path, "--log", str(logs))
    shown = {Path(name).name: text for name, text in held.items() if "/logs/" in name}
    assert shown == {f"{name}.txt" if name.endswith(".gz") else name: name for name in names}


def test_the_end_of_a_large_compressed_log_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read a file with two gzip members: the uncompressed size at its end is that of the last member only."""
    monkeypatch.setattr(archive, "redacted", str)  # which takes 40 seconds for this text
    log = tmp_path / "syncsvc.log.2.gz"
    log.write_bytes(gzip.compress(b"o" * 60_000_000, 1) + gzip.compress(b"newest"))
    (text,) = archive.read_logs([log]).texts.values()
    assert len(text) == 50_000_000
    assert text.endswith("newest")


DAMAGED = pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"cut off" * 100)[:-9]],
    ids=["no gzip", "cut off"],
)


@DAMAGED
def test_a_damaged_compressed_log_is_named(
    run: Run, api: StubApi, tmp_path: Path, content: bytes
) -> None:
    log = tmp_path / "syncsvc.log.2.gz"
    log.write_bytes(content)
    done = run("diagnose", "-o", str(tmp_path / "found.tar.gz"), "--log", str(log))
    assert done.exit_code == Exit.USAGE
    assert f"the log {log} cannot be read: " in done.stderr


@DAMAGED
def test_a_damaged_log_in_a_directory_is_left_out_and_named(
    run: Run, api: StubApi, tmp_path: Path, content: bytes
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "syncsvc.log").write_text("new")
    (logs / "syncsvc.log.2.gz").write_bytes(content)
    (logs / "syncsvc.log.3.gz").write_bytes(gzip.compress(b"old"))
    held, shown = diagnosed(run, tmp_path, "--log", str(logs))
    assert sorted(text for name, text in held.items() if "/logs/" in name) == ["new", "old"]
    damaged = str(logs / "syncsvc.log.2.gz")
    assert f"left out, because they cannot be read: {damaged}." in shown.replace("\n", " ")
    target = str(tmp_path / "again.tar.gz")
    as_json = run("diagnose", "--json", "-o", target, "--log", str(logs)).stdout
    assert json.loads(as_json)["damagedLogs"] == [damaged]


def test_missing_logs_are_named(
    api: StubApi, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs" / "folder.log").mkdir(parents=True)
    (tmp_path / "logs" / "gone.log").symlink_to("nowhere")
    place = ["--log", str(tmp_path / "logs")]
    assert "was found in" in diagnosed(run, tmp_path, *place)[1]
    for age in range(3):
        log = tmp_path / "logs" / f"syncsvc-{age}.log"
        log.write_text(f"age {age}")
        os.utime(log, (1_000_000 - age, 1_000_000 - age))
    monkeypatch.setattr(archive, "_ALL_LOGS_BYTES", 10)
    held, shown = diagnosed(run, tmp_path, *place)
    assert [text for name, text in held.items() if "/logs/" in name] == ["age 0", "age 1"]
    assert "the oldest log files (1 of 3) did not fit" in shown


def diagnosed(run: Run, folder: Path, *arguments: str) -> tuple[dict[str, str], str]:
    """Run `syncctl diagnose`; return the contents of the text files in the archive by name, and the output."""
    target = folder / "found.tar.gz"
    target.unlink(missing_ok=True)
    done = run("diagnose", "-o", str(target), *arguments)
    assert done.exit_code == Exit.OK, done.stderr
    return texts_in(target), done.stdout


def texts_in(file: Path) -> dict[str, str]:
    """Return the contents of the text files in a tar archive by name."""
    with tarfile.open(file) as opened:
        return {
            each.name: opened.extractfile(each).read().decode()  # type: ignore[union-attr]
            for each in opened
        }


def test_logs_are_collected_without_a_daemon(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ended")
    url = f"http://127.0.0.1:{free_port()}"
    target = str(tmp_path / "found.tar.gz")
    assert run("--url", url, "diagnose", "-o", target).exit_code == Exit.UNREACHABLE
    assert not Path(target).exists()
    done = run("--url", url, "diagnose", "-o", target, "--log", str(tmp_path / "a.log"))
    assert done.exit_code == Exit.OK


def test_a_report_is_written(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.answer("report", "<!doctype html>report")
    target = tmp_path / "report.html"
    done = run("report", "-o", str(target))
    assert done.exit_code == Exit.OK, done.stderr
    assert target.read_text() == "<!doctype html>report"
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    assert done.stdout.splitlines()[-1].startswith("Next: open the report in a browser")
    assert api.requests[-1].path.endswith("/report?format=html")
    # An existing file is not replaced.
    assert run("report", "-o", str(target)).exit_code == Exit.USAGE


def test_a_report_for_scripts(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.answer("report", {"report": {}, **SUCCESS})
    done = run("report", "--json")
    assert json.loads(done.stdout) == {"report": {}, **SUCCESS}
    target = tmp_path / "report.json"
    assert run("report", "--json", "-o", str(target)).stdout == ""
    assert json.loads(target.read_text()) == {"report": {}, **SUCCESS}


def test_without_a_sync_there_is_no_report(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.refuse("report", "InvalidState")
    target = tmp_path / "report.html"
    assert run("report", "-o", str(target)).exit_code == Exit.FAILED
    assert not target.exists()


@pytest.mark.parametrize(
    "progress, status",
    [(NO_CHECK, Exit.OK), (CHECKING, Exit.OK), (PASSED, Exit.OK), (DIFFERENT, Exit.FAILED)],
)
def test_the_verifier_shows_its_state(
    api: StubApi, run: Run, progress: dict[str, Any], status: Exit
) -> None:
    api.answer("progress", answer(progress))
    done = run("verifier", "status")
    assert done.exit_code == status
    assert done.stdout.splitlines()[-1].startswith("Next: ")


def test_an_incomplete_check_names_its_cause_once(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(INCOMPLETE))
    done = run("verifier", "status")
    assert done.exit_code == Exit.FAILED
    assert done.stdout.count("the operation drop: d.c") == 1
    assert "remove the reported cause, then check again: syncctl verifier check" in done.stdout


@pytest.mark.parametrize(
    "stats, text",
    [
        ({"generationStats": {"docsCompared": 0, "totalDocs": None}}, "0 documents; the total is"),
        ({"gen0Stats": {"docsCompared": 0, "totalDocs": None}}, "100 %, 0 documents\n"),
        # The total is only an estimate.
        ({"gen0Stats": {"docsCompared": 998, "totalDocs": 1_000}}, "100 %, 998 documents\n"),
    ],
)
def test_unknown_and_estimated_totals(
    api: StubApi, run: Run, stats: dict[str, Any], text: str
) -> None:
    named = {name: {**CHECKING["generationStats"], **each} for name, each in stats.items()}
    api.answer("progress", answer({**CHECKING, **named}))
    shown = run("verifier", "status").stdout
    assert text in shown and "unknown" not in shown


def test_a_check_is_run_to_its_verdict(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.answer("check", SUCCESS)
    api.answer("writesOff", SUCCESS)
    (tmp_path / "check.json").write_text('{"filter": {"owner": {"$oid": "a"}}}')
    assert run("verifier", "check", "-f", str(tmp_path / "check.json")).exit_code == Exit.OK
    assert api.bodies("check") == [{"filter": {"owner": {"$oid": "a"}}}]
    api.answer("progress", *map(answer, (CHECKING, {**CHECKING, "writesOff": True}, DIFFERENT)))
    done = run("verifier", "writes-off", "--wait")
    assert done.exit_code == Exit.FAILED
    assert "verdict: FAILED; reason: 2 documents are missing" in done.stdout
    assert "syncctl verifier mismatches" in done.stdout


@pytest.mark.parametrize(
    "verdict, status",
    [("passed", Exit.OK), ("failed", Exit.FAILED), (None, Exit.NOT_YET)],
)
def test_the_summary_tells_the_verdict(
    api: StubApi, run: Run, verdict: str | None, status: Exit
) -> None:
    api.answer("summary", {**SUMMARY, "verdict": verdict, **SUCCESS})
    done = run("verifier", "summary")
    assert done.exit_code == status
    assert "views were not compared" in done.stdout


def test_the_verifier_lists_definitions_and_documents(api: StubApi, run: Run) -> None:
    api.answer("nsMismatches", json.dumps(DEFINITION) + "\n")
    api.answer("docMismatches", json.dumps(DOCUMENT) + "\n")
    api.answer("progress", answer(DIFFERENT))
    shown = run("verifier", "mismatches").stdout
    assert shown.index("sku_1") < shown.index("price")
    # Until its commit, a sync keeps some definitions different.
    assert "Next: if a sync is running that is not COMMITTED yet, correct nothing" in shown
    assert "otherwise correct the differences on the destination" in shown
    assert len(run("verifier", "mismatches", "--json", "--limit", "1").stdout.splitlines()) == 1


def test_the_differences_of_a_running_check_are_not_to_be_corrected(api: StubApi, run: Run) -> None:
    api.answer("nsMismatches", json.dumps(DEFINITION) + "\n")
    api.answer("docMismatches", "")
    api.answer("progress", answer(CHECKING))
    shown = run("verifier", "mismatches").stdout
    assert (
        "Next: do not correct anything before the verdict; if a sync is running, first wait until it is COMMITTED"
        in shown
    )


def test_the_verifiers_report_is_written(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.answer("report", "<!doctype html>report")
    target = tmp_path / "report.html"
    assert run("verifier", "report", "-o", str(target)).exit_code == Exit.OK
    assert target.read_text() == "<!doctype html>report"
    assert api.requests[-1].path.endswith("/report?format=html")


def test_without_a_check_there_is_no_report(api: StubApi, run: Run, tmp_path: Path) -> None:
    api.refuse("report", "NoCheck")
    target = tmp_path / "report.html"
    assert run("verifier", "report", "-o", str(target)).exit_code == Exit.FAILED
    assert not target.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_printed_for_a_shell(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == Exit.OK
    assert f"_SYNCCTL_COMPLETE={shell}_complete" in done.stdout


def test_options_of_a_command_are_completed(run: Run) -> None:
    words = {"COMP_WORDS": "syncctl commit --", "COMP_CWORD": "2"}
    done = run(_SYNCCTL_COMPLETE="bash_complete", **words)
    assert "plain,--max-lag" in done.stdout


def test_users_and_roles_are_shown_before_and_after_their_copy(api: StubApi, run: Run) -> None:
    counts = {"users": 1200, "roles": 2, "equal": 3, "kept": 1}
    api.answer("preflight", {**PREFLIGHT, "usersAndRoles": {**counts, "conflicts": 0}})
    told = " ".join(run("preflight").stdout.split())
    assert (
        "users to copy: 1,200; roles to copy: 2; 3 equal; 1 different on the destination, left unchanged there"
        in told
    )
    copied = {**COMMITTABLE, "usersAndRoles": {"copied": True, **counts}}
    api.answer("progress", {"progress": copied, **SUCCESS})
    told = " ".join(run("status").stdout.split())
    assert (
        "1,200 users and 2 roles copied, 3 already equal on the destination, 1 kept as defined there"
        in told
    )
    row = {"type": "user", "database": "app", "name": "alice", "result": "conflict", "detail": "x"}
    api.answer("users", {"usersAndRoles": [row], **SUCCESS}, {"usersAndRoles": [], **SUCCESS})
    assert "alice" in run("users").stdout
    assert "no users or custom roles" in run("users").stdout
    api.forget()
    api.answer("users", {"usersAndRoles": copied["usersAndRoles"], **SUCCESS})
    assert "1,200 users and 2 roles copied" in run("users", "--copy").stdout
    assert api.bodies("users") == [{}]
