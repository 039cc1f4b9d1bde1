"""Fixtures for the tests of packages: the artefacts of this version and of the next one, and a new machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.artefacts import DIST, Artefacts, build_next
from tests.packages.machine import Machine, new_machine


@pytest.fixture(scope="session")
def dist() -> Artefacts:
    """Return the artefacts that `make dist` has built."""
    assert (DIST / "SHA256SUMS").exists(), "run `make dist` first"
    return Artefacts(DIST)


@pytest.fixture(scope="session")
def following(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    """Build the artefacts of the next version, and return them."""
    return build_next(tmp_path_factory.mktemp("next") / "clone")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Boot a new Debian system for the duration of the test."""
    with new_machine(tmp_path) as machine:
        yield machine
