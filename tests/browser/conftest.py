"""Fixtures: one browser for all tests, and pages that are open in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import Visit, running
from tests.browser.stage import StagedService, on_stage

Visits = Callable[..., Visit]
Stages = Callable[..., tuple[StagedService, str]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with running() as browser:
        yield browser


@pytest.fixture
def stages() -> Iterator[Stages]:
    """Return the function `on_stage`, whose result needs no `with`."""
    with ExitStack() as opened:
        yield lambda *change: opened.enter_context(on_stage(*change))


@pytest.fixture
def visits(browser: Browser, stages: Stages) -> Iterator[Visits]:
    """Return a function that opens a page, which is closed before its stage is.

    At the end of the test, no page may have done anything forbidden.
    """
    opened: list[Visit] = []

    def visit(url: str, **options: Any) -> Visit:
        opened.append(Visit(browser, url, **options))
        return opened[-1]

    yield visit
    for each in opened:
        each.close()
