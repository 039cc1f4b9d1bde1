"""Finds the built packages in a folder such as `dist`, and builds the last commit again in another folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import ROOT
from verifier.runtime.version import VERSION


def next_version(version: str) -> str:
    """Return the patch version after `version`, which can be a release candidate such as 1.2.3rc1."""
    major, minor, patch = version.partition("rc")[0].split(".")
    return f"{major}.{minor}.{int(patch) + 1}"


DIST = ROOT / "dist"
NEXT_VERSION = next_version(VERSION)
BUILD = Path("packaging", "build")


@dataclass(frozen=True)
class Artefacts:
    """The wheel, archive, packages and checksums that `make dist` has built for one version, in a folder."""

    folder: Path

    @property
    def wheel(self) -> Path:
        return self._one("*.whl")

    @property
    def archive(self) -> Path:
        return self._one("*.pyz")

    @property
    def deb(self) -> Path:
        return self._one("*.deb")

    @property
    def rpm(self) -> Path:
        return self._one("*.rpm")

    @property
    def sums(self) -> str:
        return (self.folder / "SHA256SUMS").read_text()

    def _one(self, pattern: str) -> Path:
        (found,) = self.folder.glob(pattern)
        return found


def build_again(place: Path) -> Artefacts:
    """Clone the repository into the folder `place`, and build the artefacts of the last commit there."""
    clone(place)
    return _build(place)


def build_next(place: Path) -> Artefacts:
    """Clone the repository into the folder `place`, and build the artefacts of a next version there.

    The next version is the last commit with a higher version number and another sample configuration.
    """
    clone(place)
    version = place / "verifier" / "runtime" / "version.py"
    version.write_text(version.read_text().replace(f'"{VERSION}"', f'"{NEXT_VERSION}"'))
    sample = place / "packaging" / "linux" / "etc" / "syncsvc.env"
    sample.write_text(f"# Another sample.\n{sample.read_text()}")
    author = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    _run("git", *author, "-C", str(place), "commit", "--quiet", "--all", "--message", "Next.")
    return _build(place)


def clone(place: Path) -> None:
    """Clone the repository into the folder `place`; replace this folder if it exists."""
    shutil.rmtree(place, ignore_errors=True)
    _run("git", "clone", "--quiet", str(ROOT), str(place))


def _build(place: Path) -> Artefacts:
    _run(str(place / BUILD), str(Path(sys.executable).parent))
    return Artefacts(place / "dist")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
