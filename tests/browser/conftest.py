"""Fixtures: one browser for all tests, and pages open in this browser."""

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
    """Return a function that calls `on_stage` with its arguments, and keeps the server running until the test ends."""
    with ExitStack() as opened:
        yield lambda *change: opened.enter_context(on_stage(*change))


@pytest.fixture
def visits(browser: Browser, stages: Stages) -> Iterator[Visits]:
    """Return a function that opens a page. After the test, all pages are closed before their servers.

    Closing a page fails the test if the page caused an error or sent a request to another host.
    """
    opened: list[Visit] = []

    def visit(url: str, **options: Any) -> Visit:
        opened.append(Visit(browser, url, **options))
        return opened[-1]

    yield visit
    for each in opened:
        each.close()
