"""Helpers for tests that resume a failed sync."""

from __future__ import annotations

from typing import Any

from tests.support.daemon import Daemon


def refused(daemon: Daemon) -> tuple[int, str, str]:
    """Send /resume, which must be refused; return the HTTP status, the name of the error and its description."""
    answer = daemon.post("resume")
    body: dict[str, Any] = answer.json()
    return answer.status_code, body["error"], body["errorDescription"]


def assert_final(daemon: Daemon, *texts: str) -> None:
    """Fail unless /resume is refused with FailureIsFinal, and the sync stays FAILED.

    The description of the refusal must contain `texts`.
    """
    before = daemon.progress()
    status, name, description = refused(daemon)
    assert (status, name) == (409, "FailureIsFinal")
    for each in (before["error"], "POST /api/v1/reset", *texts):
        assert each in description, description
    after = daemon.progress()
    assert (after["state"], after["error"]) == ("FAILED", before["error"])


def fails_again(daemon: Daemon, error: str) -> dict[str, Any]:
    """Resume a sync whose cause of failure remains, and return the progress after its next failure.

    The sync must fail with `error` again.
    """
    daemon.resume()
    return daemon.wait_for_failure(error)
