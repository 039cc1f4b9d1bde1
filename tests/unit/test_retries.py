"""Tests the plugin that retries tests after timeouts and lost connections, by running pytest in a separate process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.inner_pytest import run_pytest

XDIST = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")
TESTS = """
from pathlib import Path

import pytest
import requests
from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError

from tests.support.waiting import DeadlinePassed, wait_for

pytestmark = pytest.mark.retry
RUNS = {}


def is_first_run(name):
    RUNS[name] = RUNS.get(name, 0) + 1
    return RUNS[name] == 1


@pytest.fixture
def times_out_at_its_end():
    yield
    if is_first_run("fixture"):
        wait_for(lambda: 0, "the end", 0)


@pytest.fixture
def fails_at_its_end():
    yield
    assert not is_first_run("failing fixture")


@pytest.fixture(scope="module")
def shared_and_timed_out():
    if is_first_run("shared fixture"):
        wait_for(lambda: 0, "the beginning", 0)


def test_retried_shared_fixture(shared_and_timed_out):
    pass


def test_retried_deadline():
    if is_first_run("deadline"):
        wait_for(lambda: [], "a list", 0)


@pytest.mark.parametrize("error", [AutoReconnect, ServerSelectionTimeoutError])
def test_retried_server(error):
    if is_first_run(error.__name__):
        raise error("unreachable")


def test_retried_fixture(times_out_at_its_end):
    pass


def test_failed_always():
    raise DeadlinePassed("x", 1.0, None)


def test_failed_assertion():
    assert not is_first_run("assertion"), "DeadlinePassed: AutoReconnect"


def test_failed_because_of_a_deadline():
    try:
        raise DeadlinePassed("x", 1.0, None)
    except DeadlinePassed as error:
        assert not is_first_run("because"), "equal"


def test_failed_before_a_deadline():
    try:
        assert not is_first_run("before")
    finally:
        if RUNS["before"] == 1:
            wait_for(lambda: 0, "clean up", 0)


def test_failed_at_the_end(fails_at_its_end):
    if RUNS.get("failing fixture") is None:
        wait_for(lambda: 0, "anything", 0)


def test_failed_request():
    if is_first_run("request"):
        raise requests.ConnectionError("the daemon crashed")


def test_passed():
    pass
"""
UNMARKED = """
from tests.support.waiting import DeadlinePassed

RUNS = []


def test_failed_without_the_mark():
    RUNS.append(1)
    if len(RUNS) == 1:
        raise DeadlinePassed("x", 1.0, None)
"""


def _run(folder: Path, *options: str) -> list[str]:
    """Run pytest on a folder in a separate process, and return the lines that it prints."""
    done = run_pytest(folder, "-p", "tests.support.retries", "-rA", *options, rootdir=folder)
    assert done.stderr == ""
    return done.stdout.splitlines()


def _having(lines: list[str], *outcomes: str) -> set[str]:
    """Return the names, without parameters, of the tests with one of these outcomes in pytest's summary."""
    rows = [line.split("::") for line in lines if line.startswith(outcomes)]
    return {re.match(r"\w+", name)[0] for _, name in rows}  # type: ignore[index]


@pytest.mark.parametrize("options", [(), XDIST], ids=["alone", "xdist"])
def test_only_timeouts_are_retried(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_marked.py").write_text(TESTS)
    (tmp_path / "test_unmarked.py").write_text(UNMARKED)
    lines = _run(tmp_path, *options)
    written = set(re.findall(r"def (test_\w+)", TESTS + UNMARKED))
    failed = {name for name in written if name.startswith("test_failed")}
    assert _having(lines, "PASSED") == written - failed
    assert _having(lines, "FAILED", "ERROR") == failed
    assert any("first run of" in line and "::test_retried_deadline" in line for line in lines)
    assert any("not within 0 seconds: a list; last seen: []" in line for line in lines)
    assert lines[-1] == "6 tests were retried"


def test_a_run_without_retries_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_marked.py").write_text(TESTS)
    assert _run(tmp_path, "-q", "-k", "test_passed")[-1] == "0 tests were retried"
