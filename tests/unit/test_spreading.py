"""Tests that a pytest run with several processes ends if a test makes its process exit.

Also tests which kind of clusters a group of tests needs, according to the name of the group.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spreading import Kind, kind_of
from tests.unit.inner_pytest import ROOT, run_pytest

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
    configuration = str(ROOT / "setup.cfg")
    options = ("-p", "xdist.plugin", "-n", "2")
    done = run_pytest(tmp_path, *options, rootdir=tmp_path, configuration=configuration)
    assert done.returncode == 1
    assert "crashed while running 'test_ending.py::test_ended'" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("tests/integration/test_sharded.py from sharded", Kind.SHARDED),
        ("tests/integration/test_behaviours.py COPY-TO_SHARDED]", Kind.SHARDED),
        ("tests/model/test_model.py::test_every_run_ends_equal[to-sharded-1]", Kind.SHARDED),
        ("tests/integration/test_presplit.py::test_it[sharded-REPLICA_SETS]", Kind.ONE_MEMBER),
        ("tests/integration/test_sharded.py::test_sharded", Kind.ONE_MEMBER),
        ("tests/model/test_model.py::test_every_run_ends_equal[data-1]", Kind.THREE_MEMBERS),
        ("tests/faults/test_killed.py", Kind.THREE_MEMBERS),
        ("tests/integration/test_main_job.py::test_it", Kind.THREE_MEMBERS),
        ("tests/unit/test_spreading.py::test_it", Kind.NONE),
    ],
)
def test_the_kind_of_clusters_follows_from_the_name_of_a_group(group: str, kind: Kind) -> None:
    assert kind_of(group, ROOT) is kind
