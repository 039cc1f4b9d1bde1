"""Fixtures of unit tests, and their settings: property tests use the same examples in every run, without a deadline."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from verifier.runtime import logs

settings.register_profile("unit", max_examples=60, deadline=None, derandomize=True, database=None)
settings.load_profile("unit")


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Restore the log handlers of the test run, because the process replaces them."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logs.set_up_audit(None, logs.Style())


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables that are options of the processes."""
    for name in [name for name in os.environ if name.startswith("SYNCSVC_")]:
        monkeypatch.delenv(name)
