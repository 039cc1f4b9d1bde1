"""Tests the artefacts that need no root: the wheel in an empty virtual environment, the archive without a network.

The checksums and the list of components must be complete, and a second build must produce the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.packages.artefacts import Artefacts, build_again
from tests.packages.migration import migrate
from tests.support.pages import ROOT, commands
from tests.support.pair import Pair
from tests.support.service_process import free_port
from verifier.runtime.version import VERSION

PROGRAMS = ("syncctl", "syncsvc", "syncsvc-verifier")


def run(command: list[str] | str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command in `folder` with exactly these environment variables, and return its output.

    If `command` is a string, it is a shell script. Fails if the status of the command is not 0.
    """
    command = ["bash", "-e", "-c", command] if isinstance(command, str) else command
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=600
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_sums_and_the_components_are_complete(dist: Artefacts) -> None:
    (block,) = commands("docs/howto/install.rst", "Get the packages")
    checked = run(block.text, dist.folder, os.environ)
    files = {path.name for path in dist.folder.iterdir()} - {"SHA256SUMS"}
    assert {line.removesuffix(": OK") for line in checked.splitlines()} == files
    (sbom,) = dist.folder.glob("*.cdx.json")
    components = json.loads(sbom.read_text())["components"]
    listed = {(each["name"].lower().replace("_", "-"), each["version"]) for each in components}
    locked = (ROOT / "packaging" / "requirements.txt").read_text()
    assert listed == {*re.findall(r"^(\S+)==(\S+)", locked, re.M), ("syncsvc", VERSION)}


def test_a_build_elsewhere_has_the_same_bytes(dist: Artefacts, tmp_path: Path) -> None:
    assert build_again(tmp_path / "elsewhere").sums == dist.sums


def test_the_wheel_migrates_from_an_empty_environment(
    dist: Artefacts, pair: Pair, tmp_path: Path
) -> None:
    shutil.copy(dist.wheel, tmp_path)
    (block,) = commands("docs/howto/install.rst", "Other systems")
    venv = tmp_path / "venv"
    run(block.text.replace("/opt/syncsvc", str(venv)), tmp_path, os.environ)
    assert [*venv.glob("share/syncsvc/syncsvc@.service")]
    assert (venv / "share" / "syncsvc" / "logrotate").exists()

    def installed(*command: str) -> list[str]:
        program, *arguments = command
        return ["env", "-i", str(venv / "bin" / program), *arguments]

    migrate(installed, pair, free_port())


def pythons() -> list[Path]:
    """Return the paths of this machine's Python interpreters that the archive supports."""
    names = ("python3.11", "python3.12", "python3.13")
    found = [Path(path) for name in names if (path := _interpreter(name))]
    return [*dict.fromkeys(found)]


def _interpreter(name: str) -> str | None:
    """Return the path of an installed interpreter, or None. Shims of pyenv are ignored: they may be inactive."""
    versions = Path.home() / ".pyenv" / "versions"
    of_pyenv = [str(path) for path in versions.glob(f"*/bin/{name}")]
    here = sys.base_prefix + f"/bin/{name}"
    usual = [here, f"/usr/bin/{name}", f"/usr/local/bin/{name}", *of_pyenv]
    return next((path for path in usual if os.access(path, os.X_OK)), None)


@pytest.mark.parametrize("python", pythons(), ids=lambda path: path.name)
def test_the_archive_runs_without_a_network(
    dist: Artefacts, pair: Pair, tmp_path: Path, python: Path
) -> None:
    """Run the archive in a network namespace without a network, then run each of its programs: all must work.

    With the first interpreter, also run a migration.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(python)
    (folder / python.name).symlink_to(python)
    shutil.copy(dist.archive, tmp_path)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path)}
    show, function = commands("docs/howto/install.rst", "Without a network")
    offline = "unshare --net --map-root-user bash -e -c "
    shown = run(f"{offline}'{show.text}'", tmp_path, environment)
    assert shown.strip() == f"syncctl, version {VERSION}"
    assert VERSION in run(f"{function.text}\nsyncctl --version", tmp_path, environment)

    def installed(*command: str) -> list[str]:
        variables = [f"{name}={value}" for name, value in environment.items()]
        return ["env", "-i", *variables, str(tmp_path / dist.archive.name), *command]

    for program in PROGRAMS:
        assert "usage:" in run(installed(program, "--help"), tmp_path, {}).lower()
    wrong = subprocess.run(installed("sync"), capture_output=True, text=True)
    assert wrong.returncode == 2 and "syncctl,syncsvc,syncsvc-verifier" in wrong.stderr
    if python == pythons()[0]:
        migrate(installed, pair, free_port())
