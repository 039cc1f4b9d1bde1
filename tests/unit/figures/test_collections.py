"""The applied events, copied amounts and index builds of each collection are counted by the collection's UUID."""

from __future__ import annotations

import pytest

from syncsvc.figures.collections import CollectionFigures, Collections

A, B = b"a" * 16, b"b" * 16


def test_events_add_up() -> None:
    collections = Collections()
    collections.applied({A: 2, B: 1})
    collections.applied({A: 3})
    assert {uuid: each.events for uuid, each in collections.figures.items()} == {A: 5, B: 1}


def test_a_reading_of_the_figures_does_not_change() -> None:
    collections = Collections()
    collections.applied({A: 2})
    before = collections.figures
    collections.applied({A: 2})
    assert before[A].events == 2


def test_copied_amounts_count_from_the_start_of_reading() -> None:
    collections = Collections()
    collections.reading(A)
    collections.copied(A, 2, 200)
    collections.copied(A, 1, 100)
    first = collections.figures[A]
    assert (first.documents, first.size) == (3, 300) and first.began is not None
    collections.reading(A)
    again = collections.figures[A]
    assert (again.documents, again.size) == (0, 0)
    assert again.began is not None and again.began >= first.began


def test_a_dropped_collection_is_forgotten() -> None:
    collections = Collections()
    collections.applied({A: 2, B: 1})
    for uuid in (A, b"unknown"):
        collections.forget(uuid)
    assert set(collections.figures) == {B}


def test_indexes_are_being_built_and_then_built() -> None:
    collections = Collections()
    collections.indexing(A)
    assert collections.figures[A] == CollectionFigures(indexing=True)
    collections.indexed(A)
    assert collections.figures[A] == CollectionFigures(indexed=True)


@pytest.mark.parametrize(
    "began, now, rate",
    [(None, 50.0, None), (50.0, 54.0, 25.0), (50.0, 50.0, 100.0), (50.0, 50.5, 100.0)],
)
def test_a_rate_is_over_a_second_at_least(
    began: float | None, now: float, rate: float | None
) -> None:
    assert CollectionFigures(began=began, documents=100).documents_per_second(now) == rate
    assert CollectionFigures(began=began, size=100).bytes_per_second(now) == rate
