"""A verifier that cannot start reports the reason without credentials, and exits with a documented status."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.support.tokens import write_tokens
from tests.support.waiting import PATIENCE
from verifier.cli import LOG_FILE, main

SECRET = "S3cr3t"
GOOD = f"mongodb://user:{SECRET}@host"


@pytest.fixture(autouse=True)
def own_signals(own_handlers: None) -> Iterator[None]:
    """Restore the log handlers, the log level and the signal handlers after a test, because `main` replaces them."""
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in signals.items():
        signal.signal(number, handler)


def given(source: str, destination: str, *more: str) -> list[str]:
    # Any free port, because another test process may use the default one.
    port = ("--serverPort", "0")
    return ["--srcURI", source, "--destURI", destination, "--verifyAll", *port, *more]


@pytest.mark.parametrize(
    "options, named",
    [
        (given(f"{GOOD}/?w=1", GOOD), "source: Invalid URI option, write concern must be majority"),
        (given("host:port", GOOD), "source: The connection string is refused"),
        (given("mongo://x", GOOD), "source: The connection string is refused: Invalid URI scheme"),
        (given(f"{GOOD}/?tlsCAFile=/no/such", GOOD), "source"),
        (given(f"user:{SECRET}@host/?readPreference=nearest", GOOD), "must be primary"),
    ],
)
@pytest.mark.parametrize("more, status", [([], 1), (["--checkOnce"], 2)])
def test_a_connection_string_that_cannot_be_used_ends_the_process(
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    named: str,
    more: list[str],
    status: int,
) -> None:
    assert main([*options, *more]) == status
    captured = capsys.readouterr()
    *_, last = captured.err.splitlines()
    assert named in last and last.startswith("syncsvc-verifier: ")
    assert SECRET not in captured.err + captured.out


def test_the_log_contains_the_startup_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(given("x://", GOOD, "--logPath", str(tmp_path))) == 1
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert lines[0]["message"] == "Version info"
    assert lines[-1]["level"] == "CRITICAL" and "InvalidURI" in lines[-1]["error"]
    assert "InvalidURI" in capsys.readouterr().err


def test_standard_output_is_for_the_report_of_a_single_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(given("x://", GOOD, "--checkOnce"))
    captured = capsys.readouterr()
    assert captured.out == "" and json.loads(captured.err.splitlines()[0])["message"]
    main(given("x://", GOOD))
    assert json.loads(capsys.readouterr().out.splitlines()[0])["message"] == "Version info"


def test_a_log_that_cannot_be_written_ends_the_process(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert main(given(GOOD, GOOD, "--logPath", str(tmp_path / "file"))) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_sighup_does_not_end_a_process_that_still_connects(tmp_path: Path) -> None:
    options = ("--tokenFile", str(write_tokens(tmp_path)))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        uri = f"mongodb://127.0.0.1:{silent.getsockname()[1]}/?serverSelectionTimeoutMS=2000"
        command = [sys.executable, "-m", "verifier", *given(uri, GOOD, *options)]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            silent.accept()[0].close()
            process.send_signal(signal.SIGHUP)
            _, reported = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, "ClusterUnreachable" in reported) == (1, True), reported


def test_bad_options_end_the_process_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--srcURI", GOOD, "--destURI", GOOD])
    assert raised.value.code == 2
    assert "--verifyAll" in capsys.readouterr().err
