"""The systemd units must pass systemd's checks, and have no more privileges than necessary.

The programs accept the options in the units, in the sample configurations and in the documentation.
"""

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
from verifier.runtime.options import Option

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging" / "linux" / "systemd"
TEMPLATE = "syncsvc@.service"
UNITS = ("syncsvc.service", TEMPLATE, "syncsvc-verifier.service")
# The maximum exposure as a threshold of `systemd-analyze security`: 100 means an exposure level of 10.0.
MOST_EXPOSED = 15

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
of_each_unit = pytest.mark.parametrize("name", UNITS)


@pytest.fixture
def unit(name: str, tmp_path: Path) -> Path:
    """Write a copy of the unit whose program exists on this machine, and return the path of the copy."""
    text = (FOLDER / name).read_text()
    assert "ExecStart=/opt/syncsvc/bin/" in text
    program = Path(sys.executable)
    path = tmp_path / name.replace("@", "@a")
    path.write_text(text.replace("ExecStart=/opt/", f"ExecStart={program} /opt/"))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


@of_each_unit
def test_a_crash_leaves_no_core_dump_with_passwords(name: str) -> None:
    assert "LimitCORE=0" in (FOLDER / name).read_text().splitlines()


@needs_systemd
@of_each_unit
def test_systemd_finds_no_fault(unit: Path) -> None:
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@of_each_unit
def test_sighup_does_not_stop_the_service(name: str) -> None:
    assert "RestartForceExitStatus=SIGHUP" in _directives(FOLDER / name)


@needs_systemd
@of_each_unit
def test_the_unit_has_minimal_privileges(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))
    assert done.returncode == 0, done.stdout + done.stderr


READ: dict[str, Callable[[list[str]], syncsvc.settings.Settings | verifier.settings.Settings]] = {
    "syncsvc.service": syncsvc.settings.read_settings,
    TEMPLATE: syncsvc.settings.read_settings,
    "syncsvc-verifier.service": verifier.settings.read_settings,
}


@of_each_unit
def test_the_program_accepts_the_unit_and_documented_options(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = re.findall(
        r"^    (SYNCSVC_\w+)='?(.*?)'?$",
        (ROOT / "docs" / "howto" / "install.rst").read_text(),
        re.M,
    )
    for variable, value in variables:
        monkeypatch.setenv(variable, value)
    settings = READ[name](arguments_of(name))
    read = [each.read().uri for each in settings.sources]
    assert ["@source.example:27017" in read[0], "@destination.example:27017" in read[1]] == [
        True
    ] * 2
    assert settings.log_path is not None and settings.log_path.is_relative_to("/var/log/syncsvc")


def test_the_unit_of_the_verifier_permits_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCSVC_VERIFIER_SRC_URI", "mongodb://a")
    monkeypatch.setenv("SYNCSVC_VERIFIER_DEST_URI", "mongodb://b")
    monkeypatch.setenv("SYNCSVC_VERIFIER_INCLUDE_NAMESPACES", '[{"database": "shop"}]')
    settings = verifier.settings.read_settings(arguments_of("syncsvc-verifier.service"))
    assert settings.scope.namespaces.include == ({"database": "shop"},)


def arguments_of(name: str) -> list[str]:
    """Return the arguments with which a unit starts its program."""
    (started,) = re.findall("^ExecStart=(.*)$", (FOLDER / name).read_text(), re.M)
    return shlex.split(started)[1:]


def test_the_template_only_adds_the_instance() -> None:
    """The sync service's unit and its template unit must be equal, except for comments and an instance's options."""
    lines = [_directives(FOLDER / name) for name in ("syncsvc.service", TEMPLATE)]
    plain = [line.replace(", instance %i", "").replace("--id %i ", "") for line in lines[1]]
    plain.remove("EnvironmentFile=-/etc/syncsvc/syncsvc@%i.env")
    assert [line.replace("/%i", "") for line in plain] == lines[0]


def _directives(unit: Path) -> list[str]:
    return [line for line in unit.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(
    "name, prefix, table",
    [
        ("syncsvc.env", syncsvc.settings.PREFIX, syncsvc.settings.TABLE),
        ("verifier.env", verifier.settings.PREFIX, verifier.settings.TABLE),
    ],
)
def test_a_sample_configuration_has_known_options(
    name: str, prefix: str, table: tuple[Option, ...]
) -> None:
    text = (ROOT / "packaging" / "linux" / "etc" / name).read_text()
    found = set(re.findall("^#([A-Z0-9_]+)=", text, re.M))
    assert found and found <= {option.variable(prefix) for option in table}
    assert all(line.startswith("#") for line in text.splitlines() if line)
