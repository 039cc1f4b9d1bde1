"""A process that cannot start reports the reason without credentials, and exits with a nonzero status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncsvc.cli import LOG_FILE, main

pytestmark = pytest.mark.usefixtures("own_handlers")

SECRET = "S3cr3t"
GOOD = f"mongodb://user:{SECRET}@host"
# Any free port, because another test process may use the default one.
ANY_PORT = ("--port", "0")


@pytest.mark.parametrize(
    "uris, named",
    [
        ((f"{GOOD}/?w=1", GOOD), "cluster0: Invalid URI option, write concern must be majority"),
        (("host:1", GOOD), "cluster0: The connection string is refused: Invalid URI scheme"),
        ((f"{GOOD}/?readPreference=nearest&socketTimeoutMS=1", GOOD), "must not be set"),
    ],
)
def test_a_connection_string_that_cannot_be_used_ends_the_process(
    capsys: pytest.CaptureFixture[str], uris: tuple[str, str], named: str
) -> None:
    assert main(["--cluster0", uris[0], "--cluster1", uris[1], *ANY_PORT]) == 1
    captured = capsys.readouterr()
    assert named in captured.err and captured.err.startswith("syncsvc: ")
    assert SECRET not in captured.err + captured.out


def test_the_log_contains_the_startup_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--cluster0", "x", "--cluster1", GOOD, "--logPath", str(tmp_path), *ANY_PORT]
    assert main(arguments) == 1
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert lines[0]["message"] == "Version info"
    assert lines[-1]["level"] == "fatal" and "InvalidURI" in lines[-1]["error"]
    assert "InvalidURI" in capsys.readouterr().err


def test_the_log_names_options_that_have_no_effect(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--cluster0", "x", "--cluster1", GOOD, "--logPath", str(tmp_path), *ANY_PORT]
    main([*arguments, "--acceptDisclaimer", "--disableMetricsLogging"])
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    named = [each["option"] for each in lines if "has no effect" in each["message"]]
    assert named == ["acceptDisclaimer", "disableMetricsLogging"]
    assert "has no effect" not in capsys.readouterr().err


def test_at_a_terminal_an_error_is_one_readable_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["--cluster0", "x", "--cluster1", GOOD, *ANY_PORT]) == 1
    captured = capsys.readouterr()
    assert "{" not in captured.out + captured.err
    assert captured.err.startswith("syncsvc: InvalidURI: ") and captured.err.count("\n") == 1
    assert "InvalidURI" not in captured.out
    assert SECRET not in captured.err + captured.out


def test_a_log_that_cannot_be_written_ends_the_process(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    arguments = ["--cluster0", GOOD, "--cluster1", GOOD, "--logPath", str(tmp_path / "file")]
    assert main(arguments) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_a_missing_file_in_a_connection_string_ends_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--cluster0", f"{GOOD}/?tlsCAFile=/no/such", "--cluster1", GOOD, *ANY_PORT]) == 1
    assert "cluster0" in capsys.readouterr().err


def test_bad_options_end_the_process_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--cluster0", GOOD])
    assert raised.value.code == 2
    assert "--cluster1" in capsys.readouterr().err
