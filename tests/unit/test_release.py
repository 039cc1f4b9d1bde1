"""Tests how a release changes the version, the changelog and the image tags, and which releases are refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.packages.artefacts import next_version

_OF_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")

ROOT = Path(__file__).parents[2]
CHANGES = "Changes\n=======\n\nUnreleased\n----------\n\n- New.\n\n0.1.0\n-----\n\n- Old.\n"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = spec_from_file_location("release", ROOT / "packaging" / "release.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_versions_are_ordered(release: ModuleType) -> None:
    versions = ["0.1.0", "0.2.0rc1", "0.2.0rc2", "0.2.0", "0.10.0", "1.0.0"]
    assert sorted(reversed(versions), key=release.order) == versions


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0rc1", "0.9.9"])
def test_the_next_version_of_the_packages_is_later(release: ModuleType, version: str) -> None:
    assert release.order(next_version(version)) > release.order(version)


@pytest.mark.parametrize("version", ["1", "1.2", "1.2.3.4", "v1.2.3", "1.2.3-rc1", ""])
def test_other_forms_are_refused(release: ModuleType, version: str) -> None:
    with pytest.raises(release.Refusal, match="not a version"):
        release.order(version)


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.1.0rc1"])
def test_an_earlier_version_is_refused(release: ModuleType, version: str) -> None:
    with pytest.raises(release.Refusal, match="not later"):
        release.with_version('VERSION = "0.1.0"', "0.1.0", version)


def test_the_unreleased_changes_get_the_version(release: ModuleType) -> None:
    changed = release.with_release(CHANGES, "0.2.0", "2026-12-01")
    assert changed == CHANGES.replace("- New.", "0.2.0 (2026-12-01)\n------------------\n\n- New.")
    with pytest.raises(release.Refusal, match="nothing to release"):
        release.with_release(changed, "0.3.0", "2026-12-02")


@pytest.mark.parametrize("version", ["0.2.0rc2", "0.2.0"])
def test_a_release_has_the_changes_of_its_candidate(release: ModuleType, version: str) -> None:
    candidate = release.with_release(CHANGES, "0.2.0rc1", "2026-12-01")
    unchanged = release.with_release(candidate, version, "2026-12-08")
    assert unchanged == release.with_release(CHANGES, version, "2026-12-08")
    fixed = candidate.replace("----------\n", "----------\n\n- Fixed.\n", 1)
    both = CHANGES.replace("- New.", "- New.\n- Fixed.")
    assert release.with_release(fixed, version, "2026-12-08") == release.with_release(
        both, version, "2026-12-08"
    )


def test_a_release_keeps_the_candidate_of_another_version(release: ModuleType) -> None:
    candidate = release.with_release(CHANGES, "0.2.0rc1", "2026-12-01")
    with pytest.raises(release.Refusal, match="nothing to release"):
        release.with_release(candidate, "0.2.1", "2026-12-08")


def test_the_sections_of_a_candidate_get_the_later_changes(release: ModuleType) -> None:
    old = "\n- First.\n\nSync\n~~~~\n\nNew\n^^^\n\n- New.\n\nFixed\n^^^^^\n\n- Fixed.\n\nPages\n~~~~~\n\n- Better.\n\n"
    new = "\nTests\n~~~~~\n\n- More.\n\nSync\n~~~~\n\nNew\n^^^\n\n- Newer.\n\n"
    expected = old.replace("- New.", "- New.\n- Newer.") + "Tests\n~~~~~\n\n- More.\n\n"
    heading = (
        "Changes\n=======\n\nUnreleased\n----------\n{}{}\n---------------------\n{}0.1.0\n-----\n"
    )
    found = release.with_release(
        heading.format(new, "0.2.0rc1 (2026-12-01)", old), "0.2.0rc2", "2026-12-08"
    )
    assert found == heading.format("\n", "0.2.0rc2 (2026-12-08)", expected)


def test_the_files_of_the_project_are_changed(release: ModuleType) -> None:
    old = release._current_version()
    text = (ROOT / release.VERSION_FILE).read_text()
    assert 'VERSION = "99.0.0"' in release.with_version(text, old, "99.0.0")
    manifest = (ROOT / "packaging/kubernetes/standby/deployment.yaml").read_text()
    assert "image: syncsvc:99.0.0\n" in release.with_image(manifest, old, "99.0.0")


class Clone:
    """A repository with only the files that a release needs. `failing` is the target at which its `make` fails."""

    def __init__(self, folder: Path, failing: str = "") -> None:
        self._folder = folder
        for name in ("packaging/release.py", "verifier/runtime/version.py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "CHANGELOG.rst").write_text(CHANGES)
        targets = "".join(
            f"{target}:\n\t{'false' if target == failing else 'true'}\n"
            for target in ("reference", "check", "docs", "dist")
        )
        (folder / "Makefile").write_text(targets)
        self.git("init", "--quiet")
        for name, value in (("user.name", "test"), ("user.email", "test@example.org")):
            self.git("config", name, value)

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self._folder, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def commit(self) -> str:
        """Commit all files, and return the hash of the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "All.")
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def release(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "packaging/release.py", "99.0.0"]
        # `make check` runs this test, but must not pass its own options to the commands of the release.
        env = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
        return subprocess.run(command, cwd=self._folder, env=env, capture_output=True, text=True)


def test_a_release_from_changed_files_is_refused(tmp_path: Path) -> None:
    done = Clone(tmp_path).release()
    assert done.returncode == 1
    assert "not committed" in done.stderr
    assert 'VERSION = "99.0.0"' not in (tmp_path / "verifier/runtime/version.py").read_text()


def test_a_release_is_committed_and_tagged(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    first = clone.commit()
    done = clone.release()
    assert (done.returncode, done.stderr) == (0, "")
    assert clone.git("rev-parse", "v99.0.0^{commit}") == clone.head != first
    assert 'VERSION = "99.0.0"' in clone.git("show", "HEAD:verifier/runtime/version.py")


@pytest.mark.parametrize("failing", ["check", "tag"])
def test_a_failed_release_leaves_nothing(tmp_path: Path, failing: str) -> None:
    clone = Clone(tmp_path, failing)
    if failing == "tag":
        clone.git("config", "tag.gpgSign", "true")
        clone.git("config", "gpg.program", "false")
    first = clone.commit()
    done = clone.release()
    assert done.returncode == 1 and "No release was made" in done.stderr
    assert (clone.head, clone.git("tag"), clone.git("status", "--porcelain")) == (first, "", "")


def test_a_release_without_artefacts_says_that_it_was_made(tmp_path: Path) -> None:
    clone = Clone(tmp_path, failing="dist")
    clone.commit()
    done = clone.release()
    assert done.returncode == 1 and "No release was made" not in done.stderr
    assert "Version 99.0.0 is committed and tagged" in done.stderr and "make dist" in done.stderr
    assert clone.git("tag") == "v99.0.0\n"


@pytest.mark.parametrize("arguments", [[], ["1.0.0", "2.0.0"]])
def test_a_wrong_number_of_arguments_shows_the_usage(
    release: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert release.main(arguments) == 1
    assert capsys.readouterr().err == "usage: make release VERSION=1.2.3\n"


def test_a_bug_does_not_show_the_usage(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(version: str) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(release, "release", fail)
    with pytest.raises(ValueError, match="a bug"):
        release.main(["99.0.0"])
