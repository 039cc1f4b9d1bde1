"""Tests that web pages of other sites can neither send commands to the services nor read their answers.

Scripts must still be able to do both.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.test_bad_input import assert_refused
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.service_process import ServiceProcess
from tests.support.verifier import Verifier
from tests.support.waiting import PATIENCE

FOREIGN_PAGE = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
FOREIGN_HOST = {"Host": "evil.example", "Content-Type": "text/plain"}


def assert_commands_are_refused(process: ServiceProcess, *commands: str) -> None:
    for command in commands:
        answer = process.post(command, headers=FOREIGN_PAGE)
        assert_refused(answer, 403, "OriginNotAllowed", ("evil.example", "curl"))
        answer = process.post(command, headers=FOREIGN_HOST)
        assert_refused(answer, 403, "HostNotAllowed", ("evil.example", "--allowedHosts"))


def assert_nothing_is_read(process: ServiceProcess, *paths: str) -> None:
    for path in paths:
        answer = process.get_with(path, {"Host": "evil.example"})
        assert_refused(answer, 403, "HostNotAllowed", ("evil.example",))


def curl(process: ServiceProcess, command: str, *options: str) -> str:
    """Send a POST request with curl, as the documentation shows, and return the body of the answer.

    `options` are additional arguments of curl. The content type of the request is that of an HTML form.
    """
    called = ["curl", "-s", process.url(command), "-X", "POST", "--data", "{}", *options]
    done = subprocess.run(called, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout


def test_a_web_page_cannot_send_commands_to_a_sync(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    assert_commands_are_refused(daemon, "start", "preflight")
    daemon.start()
    daemon.wait_until_committable()
    assert_commands_are_refused(daemon, "pause", "resume", "users", "commit", "reverse")
    assert_nothing_is_read(
        daemon, "progress", "mismatches", "namespaces", "openapi.json", "/metrics"
    )
    assert daemon.progress()["state"] == "RUNNING"
    assert '"success":true' in curl(daemon, "pause")
    assert '"success":true' in curl(daemon, "resume", "-H", "Content-Type:")
    daemon.commit()
    pair.assert_equal()


def test_a_web_page_cannot_send_commands_to_a_check(pair: Pair, tmp_path: Path) -> None:
    options = ("--verifyAll", "--graceSeconds", "0", "--allowedHosts", "Proxy.example")
    with Verifier(pair.source.uri, pair.destination.uri, tmp_path, *options).running() as verifier:
        assert_commands_are_refused(verifier, "check", "writesOff")
        assert_nothing_is_read(verifier, "progress", "summary", "docMismatches", "nsMismatches")
        assert '"success":true' in curl(verifier, "check", "-H", "Host: proxy.example")
        assert '"success":true' in curl(verifier, "writesOff")
        assert verifier.wait_for_verdict()["verdict"] == "passed"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_the_names_of_this_machine_are_accepted(daemon: Daemon, name: str) -> None:
    answer = daemon.get_with("progress", {"Host": f"{name}:{daemon.port}"})
    assert answer.status_code == 200
