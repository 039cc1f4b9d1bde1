"""Runs pytest with several processes. If a test ends its process, the whole run must end, too."""

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

import pytest


@pytest.mark.parametrize("n", range(40))
def test_passed(n):
    pass


def test_ended():
    os._exit(1)


@pytest.mark.parametrize("n", range(40))
def test_later(n):
    pass
"""


def test_the_run_ends_and_names_a_test_that_ended_its_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_ending.py").write_text(TESTS)
    configuration = ("-c", str(ROOT / "setup.cfg"), "--rootdir", str(tmp_path))
    command = [sys.executable, "-m", "pytest", *configuration, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-n", "2", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert "crashed while running 'test_ending.py::test_ended'" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]
