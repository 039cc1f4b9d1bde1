"""Tests services with tokens and TLS.

Generated requests with and without tokens may cause no internal error, and no output may contain a token. New tokens
and certificates must be used without a restart.
"""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest
import requests

from tests.support.certificates import make_certificates
from tests.support.daemon import Daemon
from tests.support.fuzzing import Fuzzer
from tests.support.pair import Pair
from tests.support.tokens import OPERATOR, READER, bearer, write_tokens
from tests.support.verifier import Verifier
from tests.support.waiting import PATIENCE, wait_for
from verifier.compare.points import Point

NOBODY = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600000"


def test_a_daemon_with_tokens(tmp_path: Path) -> None:
    daemon = Daemon(NOBODY, NOBODY, tmp_path, "--tokenFile", str(write_tokens(tmp_path)))
    (tmp_path / "wait-briefly").touch()
    try:
        daemon.use_token(READER)
        daemon.run(ready=False)
        fuzzer = Fuzzer(daemon)
        for token in (OPERATOR, READER, None):
            fuzzer.fuzz(token=token)
        assert daemon.post("pause").json()["error"] == "RoleNotAllowed"
        daemon.use_token(OPERATOR)
        assert daemon.post("pause").json()["error"] == "InvalidState"
    finally:
        daemon.close()
    audited = [
        json.loads(each) for each in (tmp_path / "log" / "audit.log").read_text().splitlines()
    ]
    assert {each["caller"] for each in audited} == {None, "rita", "otto"}
    assert (audited[-1]["caller"], audited[-1]["error"]) == ("otto", "InvalidState")
    for path in (tmp_path / "log").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = "".join(each.read_text() for each in (tmp_path / "log").iterdir()) + daemon.output
    assert READER not in written and OPERATOR not in written


def test_a_verifier_with_tokens(pair: Pair, tmp_path: Path) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    tokens = ("--tokenFile", str(write_tokens(tmp_path)))
    verifier = Verifier(pair.source.uri, pair.destination.uri, tmp_path, "--verifyAll", *tokens)
    verifier.use_token(OPERATOR)
    with verifier.running():
        fuzzer = Fuzzer(verifier)
        with verifier.held_at(Point.LISTED):
            verifier.check()
            for token in (OPERATOR, READER, None):
                fuzzer.fuzz(only_bad=("writesOff",), token=token)
            verifier.use_token(READER)
            assert verifier.post("writesOff").json()["error"] == "RoleNotAllowed"
        verifier.use_token(OPERATOR)
        verifier.writes_off()
        assert verifier.wait_for_verdict()["verdict"] == "failed"
        commands = verifier.get("report").json()["report"]["commands"]
        assert [each["caller"] for each in commands] == ["otto", "otto"]
    written = "".join(each.read_text() for each in (tmp_path / "log").iterdir()) + verifier.output
    assert READER not in written and OPERATOR not in written


def test_a_daemon_with_tls(tmp_path: Path) -> None:
    authority = write_pair(tmp_path / "first")
    tokens = write_tokens(tmp_path)
    daemon = secured_daemon(tmp_path, tmp_path / "first", "--tokenFile", str(tokens))
    try:
        daemon.launch()
        wait_for(
            lambda: daemon.exit_status is not None or status(daemon, authority, OPERATOR) == 200,
            "it answers",
        )
        tokens.write_text(f"reader {READER}")
        daemon.signal(signal.SIGHUP)
        wait_for(lambda: status(daemon, authority, OPERATOR) == 401, "the new tokens")
        assert status(daemon, authority, READER) == 200
    finally:
        daemon.close()


@pytest.mark.full
def test_a_renewed_certificate_needs_no_signal(tmp_path: Path) -> None:
    """Swap a link to a folder with the certificate, as Kubernetes does when a secret changes."""
    authorities = {name: write_pair(tmp_path / name) for name in ("first", "unusable", "second")}
    (tmp_path / "unusable" / "server.pem").write_text("no certificate")
    current = tmp_path / "current"
    current.symlink_to("first")

    def swap(name: str) -> None:
        (tmp_path / "new").symlink_to(name)
        (tmp_path / "new").replace(current)

    daemon = secured_daemon(tmp_path, current)
    try:
        daemon.launch()
        wait_for(
            lambda: daemon.exit_status is not None or status(daemon, authorities["first"]) == 200,
            "it answers",
        )
        swap("unusable")
        wait_for(lambda: "Could not reload a file" in daemon.log, "the error")
        assert status(daemon, authorities["first"]) == 200
        swap("second")
        wait_for(lambda: status(daemon, authorities["second"]) == 200, "the new certificate")
        assert status(daemon, authorities["first"]) is None
        assert daemon.log.count("Could not reload a file") == 1
    finally:
        daemon.close()


def write_pair(folder: Path) -> Path:
    """Write a new certificate with its key to `server.pem` in a new folder; return the path of the CA's certificate."""
    folder.mkdir()
    made = make_certificates(folder)
    made.server.chmod(0o600)
    return made.authority


def secured_daemon(folder: Path, certificates: Path, *options: str) -> Daemon:
    """Return a daemon that uses `server.pem` in the folder `certificates`."""
    path = str(certificates / "server.pem")
    return Daemon(NOBODY, NOBODY, folder, "--tlsCertFile", path, "--tlsKeyFile", path, *options)


def status(daemon: Daemon, authority: Path, token: str = "") -> int | None:
    """Return the status of the answer to a request with TLS.

    Return None if there is no answer, or if `authority` did not sign the certificate.
    """
    url = f"https://127.0.0.1:{daemon.port}/api/v1/progress"
    headers = bearer(token) if token else {}
    try:
        return requests.get(
            url, headers=headers, verify=str(authority), timeout=PATIENCE
        ).status_code
    except requests.ConnectionError:
        return None
