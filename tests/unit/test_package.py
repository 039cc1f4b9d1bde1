"""The package metadata in setup.cfg matches the files of the project.

So do the contents of the .deb and the .rpm, the locked versions of dependencies, and the hooks of pre-commit.
"""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml

from tests.support.lowest import SETUP, lowest

ROOT = SETUP.parent


def read_setup() -> ConfigParser:
    config = ConfigParser()
    config.read(SETUP)
    return config


def test_every_dependency_has_a_lower_bound_that_is_tested() -> None:
    setup = read_setup()
    required = setup["options"]["install_requires"].split("\n")[1:]
    pinned = [*lowest()]
    assert {f"{line.split()[0]}=={line.split()[-1]}" for line in required} <= {*pinned}
    assert len({line.partition("==")[0] for line in pinned}) == len(pinned)


def test_packages_are_typed() -> None:
    for package in ("syncsvc", "verifier"):
        assert (ROOT / package / "py.typed").exists()
        assert "py.typed" in read_setup()["options.package_data"][package]


_OF_PAGES = {".html", ".css", ".js", ".svg"}


def test_the_wheel_holds_the_files_of_the_pages() -> None:
    for package in ("syncsvc", "verifier"):
        patterns = read_setup()["options.package_data"][package].split(", ")
        packed = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
        files = [each for each in (ROOT / package).rglob("*.*") if each.suffix in _OF_PAGES]
        assert files and {*files} <= packed


def test_the_wheel_holds_every_page_unit_and_file_for_operation() -> None:
    patterns = " ".join(read_setup()["options.data_files"].values()).split()
    packed = {path for pattern in patterns for path in ROOT.glob(pattern)}
    docs = ROOT / "docs"
    monitoring = docs.glob("monitoring/*")
    units = ROOT.glob("packaging/linux/systemd/*")
    rotation = ROOT / "packaging" / "linux" / "etc" / "logrotate"
    assert {*docs.rglob("*.rst"), *units, *monitoring, rotation} <= packed


def test_the_packages_install_the_files_that_the_pages_name() -> None:
    page = (ROOT / "docs" / "howto" / "alert.rst").read_text()
    named = {Path(each) for each in re.findall(r"/opt/syncsvc/share/\S+", page)}
    # The page names the dashboard without its folder.
    named |= {each.with_name("grafana-dashboard.json") for each in named}
    assert named and named <= _installed_by_packages()


def test_the_packages_own_their_folders() -> None:
    """An .rpm removes only the folders that it lists: /opt/syncsvc must be gone after a removal."""
    top = Path("/opt/syncsvc")
    folders = {Path(each["dst"]) for each in _package_contents() if each.get("type") == "dir"}
    needed = {
        folder
        for file in _installed_by_packages()
        for folder in file.parents
        if folder.is_relative_to(top) and folder != top
    }
    assert needed and needed <= folders


def _installed_by_packages() -> set[Path]:
    """Return the paths of the files that the packages copy from the repository into whole folders."""
    return {
        Path(each["dst"], file.name)
        for each in _package_contents()
        if each["dst"].endswith("/")
        for file in ROOT.glob(each["src"])
    }


def _package_contents() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / "packaging" / "linux" / "nfpm.yaml").read_text())
    contents: list[dict[str, Any]] = config["contents"]
    return contents


def test_the_lock_file_has_every_dependency() -> None:
    """The lock file must contain every dependency. If one is missing, run `make lock`."""
    required = read_setup()["options"]["install_requires"].split("\n")[1:]
    text = (ROOT / "packaging" / "requirements.txt").read_text()
    locked = set(re.findall(r"^([\w.-]+)==\S+ \\\n +--hash=", text, re.M))
    assert {line.split()[0].lower().replace("_", "-") for line in required} <= locked


def test_the_image_is_built_with_the_locked_build_tool() -> None:
    """If the versions differ, run `make lock`."""
    script = (ROOT / "packaging" / "image" / "install").read_text().replace("\\\n", " ")
    installed = re.findall(r"^pip install .*", script, re.M)
    assert len(installed) == 2
    for line in installed:
        assert "--require-hashes" in line or {"--no-deps", "--no-build-isolation"} <= {
            *line.split()
        }
    locked = (ROOT / "packaging" / "build-requirements.txt").read_text()
    (version,) = re.findall(r"^setuptools==(\S+) \\\n +--hash=", locked, re.M)
    tools = read_setup()["options.extras_require"]["dist"].splitlines()
    assert f"setuptools == {version}" in tools


def test_vulnerable_versions_of_the_http_server_are_not_allowed() -> None:
    """CVE-2024-49768 and CVE-2024-49769 were fixed in waitress 3.0.1."""
    (lowest_server,) = (each for each in lowest() if each.startswith("waitress=="))
    assert tuple(map(int, lowest_server.partition("==")[2].split("."))) >= (3, 0, 1)


def test_hooks_use_the_tools_of_the_makefile() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    makefile = (ROOT / "Makefile").read_text()
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert hooks
    for hook in hooks:
        tool = Path(hook["entry"].split()[0])
        assert tool.parent.name == "bin" and f"$(BIN)/{tool.name}" in makefile
