"""A tuning can be rendered as a table, and the memory estimate is computed from it."""

from __future__ import annotations

from dataclasses import fields, replace

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
    table = as_rst(Tuning(queue_bytes=3 * MB, portion_bytes=2000, note_interval=0.5))
    assert "``queue_bytes``\n     - 3 MiB\n" in table
    assert "``portion_bytes``\n     - 2000 bytes\n" in table
    assert "``note_interval``\n     - 0.5 s\n" in table


@pytest.mark.parametrize(
    "change, more",
    [
        ({}, 0),
        ({"queue_bytes": 17 * MB}, MB),
        ({"sending_bytes": 17 * MB}, 3 * MB),
        ({"spool_row_bytes": 5 * MB}, 5 * MB),
    ],
)
def test_the_memory_that_is_needed_follows_from_the_sizes(
    change: dict[str, int], more: int
) -> None:
    changed = replace(Tuning(), **change)
    assert changed.memory_needed(6) - Tuning().memory_needed(6) == more


def test_a_page_that_is_larger_than_any_document_takes_more_in_each_thread() -> None:
    assert Tuning(page_bytes=32 * MB).memory_needed(2) > Tuning().memory_needed(2)
