"""Tests how a release changes the version, the changelog and the image tags, and which releases are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

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


def test_the_files_of_the_project_are_changed(release: ModuleType) -> None:
    old = release._current_version()
    text = (ROOT / release.VERSION_FILE).read_text()
    assert 'VERSION = "99.0.0"' in release.with_version(text, old, "99.0.0")
    manifest = (ROOT / "packaging/kubernetes/standby/deployment.yaml").read_text()
    assert "image: syncsvc:99.0.0\n" in release.with_image(manifest, old, "99.0.0")


def test_a_release_from_changed_files_is_refused(tmp_path: Path) -> None:
    for name in ("packaging/release.py", "verifier/runtime/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "packaging/release.py", "99.0.0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "not committed" in done.stderr
    assert 'VERSION = "99.0.0"' not in (tmp_path / "verifier/runtime/version.py").read_text()


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
