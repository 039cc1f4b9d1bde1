"""Tests what `syncctl status` says about the verification while the process has no figures of it."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.ctl.facts import sync_facts
from syncsvc.ctl.rates import Rates
from tests.unit.ctl.progress import COMMITTED, COPYING, FAILED


@pytest.mark.parametrize(
    "progress, text",
    [
        (COPYING, "begins, or continues after a restart, when the destination has caught up"),
        ({**COMMITTED, "verification": COPYING["verification"]}, "saved results are in the report"),
        ({**FAILED, "verification": COPYING["verification"]}, "saved results are in the report"),
    ],
    ids=["copying", "committed", "failed"],
)
def test_the_status_says_where_the_verification_is_shown(
    progress: dict[str, Any], text: str
) -> None:
    (said,) = [each.text for each in sync_facts(progress, Rates()) if each.label == "verification"]
    assert text in said
