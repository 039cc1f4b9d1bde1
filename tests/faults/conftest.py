"""The clusters that several tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.proxied import Proxied


@pytest.fixture(scope="module")
def proxied() -> Iterator[Proxied]:
    with ExitStack() as stack:
        yield Proxied(stack)
