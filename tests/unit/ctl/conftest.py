"""Fixtures for the tests of `syncctl`: a server with prepared answers, and a function that runs `syncctl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from syncsvc.ctl.cli import syncctl
from tests.support.stub_api import StubApi, stub_api

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[StubApi]:
    with stub_api() as stub:
        yield stub


@pytest.fixture
def run(api: StubApi) -> Run:
    """Return a function that runs `syncctl` in this process against the server, without a terminal.

    The arguments of the function are the arguments of `syncctl`; its keywords are environment variables.
    """
    environment = {"SYNCCTL_URL": api.url, "SYNCCTL_VERIFIER_URL": api.url}

    def run(*arguments: str, **more: str) -> Result:
        return CliRunner(env={**environment, **more}).invoke(
            syncctl, arguments, prog_name="syncctl"
        )

    return run
