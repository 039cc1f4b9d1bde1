"""Tests which write errors of an insert mean that the document already exists, and the text of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.engine.run.document_writer import Refused, already_exists


@pytest.mark.parametrize(
    "error, there",
    [
        ({"code": 11000, "keyPattern": {"_id": 1}}, True),
        ({"code": 11000}, True),
        ({"code": 11000, "keyPattern": {"a": 1}}, False),
        ({"code": 11000, "keyPattern": {"_id": 1, "a": 1}}, False),
        ({"code": 121}, False),
        ({"code": 371, "keyPattern": {"_id": 1}}, False),
    ],
)
def test_only_a_duplicate_id_counts_as_already_existing(error: dict[str, Any], there: bool) -> None:
    assert already_exists(error) is there


def test_a_refusal_shows_the_first_reason_and_keeps_all() -> None:
    errors: list[dict[str, Any]] = [
        {"index": 3, "code": 2, "errmsg": "first"},
        {"index": 5, "code": 2},
    ]
    refused = Refused(errors)
    assert (str(refused), refused.errors) == ("first", errors)
