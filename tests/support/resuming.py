"""Helpers for a failed sync that is resumed."""

from __future__ import annotations

from typing import Any

from tests.support.daemon import Daemon


def refused(daemon: Daemon) -> tuple[int, str, str]:
    """Send a resume that is refused, and return the status, name and description of the error."""
    answer = daemon.post("resume")
    body: dict[str, Any] = answer.json()
    return answer.status_code, body["error"], body["errorDescription"]


def assert_final(daemon: Daemon, *texts: str) -> None:
    """Assert that a resume is refused for good, with these texts, and that the sync stays failed."""
    before = daemon.progress()
    status, name, description = refused(daemon)
    assert (status, name) == (409, "FailureIsFinal")
    for each in (before["error"], "POST /api/v1/reset", *texts):
        assert each in description, description
    after = daemon.progress()
    assert (after["state"], after["error"]) == ("FAILED", before["error"])


def fails_again(daemon: Daemon, error: str) -> dict[str, Any]:
    """Resume while a cause of failure is still there; return the progress after the sync has failed with `error`."""
    daemon.resume()
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == error, failed
    return failed
