"""The systemd units must pass systemd's checks, and have no more permissions than necessary."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import syncsvc.settings
import verifier.settings

DOCS = Path(__file__).parents[2] / "docs"
UNITS = ("syncsvc.service", "syncsvc-verifier.service")
# The maximum exposure as a threshold of `systemd-analyze security`: 100 means an exposure level of 10.0.
MOST_EXPOSED = 15

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
of_each_unit = pytest.mark.parametrize("name", UNITS)


@pytest.fixture
def unit(name: str, tmp_path: Path) -> Path:
    """Write a copy of the unit whose program exists on this machine, and return its path."""
    text = (DOCS / name).read_text()
    assert "ExecStart=/opt/syncsvc/bin/" in text
    program = Path(sys.executable)
    (tmp_path / name).write_text(text.replace("ExecStart=/opt/", f"ExecStart={program} /opt/"))
    return tmp_path / name


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


@needs_systemd
@of_each_unit
def test_systemd_finds_no_fault(unit: Path) -> None:
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
@of_each_unit
def test_the_unit_has_minimal_privileges(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))
    assert done.returncode == 0, done.stdout + done.stderr


READ: dict[str, Callable[[list[str]], object]] = {
    "syncsvc.service": syncsvc.settings.read_settings,
    "syncsvc-verifier.service": verifier.settings.read_settings,
}


@of_each_unit
def test_the_program_accepts_the_unit_and_documented_options(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = re.findall(
        r"^    (SYNCSVC_\w+)='(.*)'$", (DOCS / "howto" / "prepare.rst").read_text(), re.M
    )
    for variable, value in variables:
        monkeypatch.setenv(variable, value)
    (started,) = re.findall("^ExecStart=(.*)$", (DOCS / name).read_text(), re.M)
    settings = READ[name](shlex.split(started)[1:])
    read = repr(settings)
    assert "@source.example:27017" in read and "@destination.example:27017" in read
    assert "/var/log/syncsvc" in read
