"""Fixtures of unit tests, and the settings of Hypothesis: the same examples in every run, and no deadline.

Python searches for reference cycles less often than usual, so that the tests take less time.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from verifier.runtime import logs
from verifier.runtime.garbage import collect_rarely

# Hypothesis makes many objects that are not in reference cycles: each search for cycles would visit them in vain.
collect_rarely()
settings.register_profile("unit", max_examples=60, deadline=None, derandomize=True, database=None)
settings.load_profile("unit")


def pytest_collection_finish() -> None:
    """Leave the collected tests and the imported modules out of every search for reference cycles."""
    gc.freeze()


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Restore the log handlers and the log level after a test that calls `main`, which replaces them."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logs.set_up_audit(None, logs.Style())


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove, for one test, the environment variables that set options of the daemon and of the verifier."""
    for name in [name for name in os.environ if name.startswith("SYNCSVC_")]:
        monkeypatch.delenv(name)
