"""A failed verification names its mismatches, without drowning anybody."""

from __future__ import annotations

import logging

import pytest

from syncsvc.engine.verification import _failed
from syncsvc.errors import VERIFICATION_FAILED
from verifier.cluster.namespace import Namespace
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference


def mismatches(count: int) -> list[DefinitionMismatch]:
    return [
        DefinitionMismatch(Namespace("d", "c"), Difference.MISSING, Aspect.INDEX, f"x_{number}")
        for number in range(count)
    ]


@pytest.mark.parametrize(
    "count, begins, ends",
    [
        (1, "1 mismatches were found: d.c: index x_0 is missing", "on the destination."),
        (3, "3 mismatches were found: ", "index x_2 is missing on the destination."),
        (50, "50 mismatches were found: ", "; and 47 more."),
    ],
)
def test_the_first_mismatches_are_named(count: int, begins: str, ends: str) -> None:
    error = _failed(mismatches(count))
    assert error.kind is VERIFICATION_FAILED
    assert error.description.startswith(begins) and error.description.endswith(ends)


@pytest.mark.parametrize("count, logged", [(1, 1), (20, 20), (500, 20)])
def test_some_more_are_logged(caplog: pytest.LogCaptureFixture, count: int, logged: int) -> None:
    with caplog.at_level(logging.ERROR):
        _failed(mismatches(count))
    assert len(caplog.records) == logged
    assert vars(caplog.records[0])["mismatch"] == "d.c: index x_0 is missing on the destination"
