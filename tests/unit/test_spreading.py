"""Tests that a run over several processes ends after one of them has ended, by running pytest in a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support.spreading import Spreading


def pytest_xdist_make_scheduler(config, log):
    return Spreading(config, log)
"""
TESTS = """
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("n", range(40))
def test_passed(n):
    pass


def test_ended():
    with (Path(__file__).parent / "ended").open("a") as file:
        file.write("x")
    os._exit(1)


@pytest.mark.parametrize("n", range(40))
def test_later(n):
    pass
"""
GROUP = """
import os

import pytest


@pytest.fixture(scope="module")
def shared():
    pass


def test_before(shared):
    pass


def test_ended(shared):
    os._exit(1)


def test_after(shared):
    pass
"""


def test_a_test_that_ends_its_process_fails_once_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_singly.py").write_text(TESTS)
    (tmp_path / "test_group.py").write_text(GROUP)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    plugins = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-n", "2")
    done = subprocess.run(
        [*command, *plugins, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert "2 failed, 82 passed" in done.stdout.splitlines()[-1]
    assert (tmp_path / "ended").read_text() == "x"
