"""Tuning parameters of a service are rendered as a table, and the estimate of memory use is computed from them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from syncsvc.tuning import Tuning
from verifier.compare.tuning import CheckTuning
from verifier.runtime.tuning import MB, as_rst


@pytest.mark.parametrize("tuning", [Tuning(), CheckTuning()])
def test_the_table_has_a_row_for_each_size_and_interval(tuning: Tuning | CheckTuning) -> None:
    table = as_rst(tuning)
    for each in fields(tuning):
        assert (f"   * - ``{each.name}``\n" in table) is ("unit" in each.metadata)


def test_values_are_shown_with_their_units() -> None:
    table = as_rst(Tuning(pages_bytes=3 * MB, portion_bytes=2000, note_interval=0.5))
    assert "``pages_bytes``\n     - 3 MiB\n" in table
    assert "``portion_bytes``\n     - 2000 bytes\n" in table
    assert "``note_interval``\n     - 0.5 s\n" in table


@pytest.mark.parametrize(
    "change, more",
    [
        ({}, 0),
        ({"reading_bytes": 33 * MB}, 3 * MB),
        ({"pages_bytes": 33 * MB}, 2 * MB),
        ({"sending_bytes": 25 * MB}, 3 * MB),
        ({"spool_row_bytes": 5 * MB}, 5 * MB),
    ],
)
def test_the_memory_that_is_needed_follows_from_the_sizes(
    change: dict[str, Any], more: int
) -> None:
    changed = replace(Tuning(), **change)
    assert changed.memory_needed - Tuning().memory_needed == more
