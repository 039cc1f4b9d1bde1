"""The artefacts in dist, and builds of another version or in another place."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import ROOT
from verifier.runtime.version import VERSION

DIST = ROOT / "dist"
NEXT_VERSION = f"{VERSION}.1"
BUILD = Path("packaging", "build")


@dataclass(frozen=True)
class Artefacts:
    """A folder with the artefacts of one version."""

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
    """Build the last commit in another folder."""
    _clone(place)
    return _build(place)


def build_next(place: Path) -> Artefacts:
    """Build the last commit with a higher version and another sample configuration."""
    _clone(place)
    version = place / "verifier" / "runtime" / "version.py"
    version.write_text(version.read_text().replace(f'"{VERSION}"', f'"{NEXT_VERSION}"'))
    sample = place / "packaging" / "linux" / "etc" / "syncsvc.env"
    sample.write_text(f"# Another sample.\n{sample.read_text()}")
    author = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    _run("git", *author, "-C", str(place), "commit", "--quiet", "--all", "--message", "Next.")
    return _build(place)


def _clone(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    _run("git", "clone", "--quiet", str(ROOT), str(place))


def _build(place: Path) -> Artefacts:
    _run(str(place / BUILD), str(Path(sys.executable).parent))
    return Artefacts(place / "dist")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
