"""Tests the pauses of a check before it compares again, and its notes about selected names that do not exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.compare.check import Check, next_pause, pause_after_changes
from verifier.compare.record import Request
from verifier.compare.scope import NamespacePair, Scope
from verifier.compare.tuning import CheckTuning
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

TUNING = CheckTuning(least_pause=1.0, most_pause=30.0)


@pytest.mark.parametrize(
    "before, same, duration, pause",
    [
        (1, True, 0.1, 2),
        (20, True, 0.1, 30),
        (30, True, 3, 30),
        (30, True, 60, 60),
        (400, True, 60, 600),
        (600, True, 60, 600),
        (600, True, 0.1, 30),
        (600, False, 60, 1),
    ],
)
def test_the_pause_grows_while_the_mismatches_stay_the_same(
    before: float, same: bool, duration: float, pause: float
) -> None:
    assert next_pause(before, same, duration, TUNING) == pause


@pytest.mark.parametrize(
    "duration, mismatches, pause, in_sync",
    [(0.1, False, 1, 1), (60, False, 1, 1), (0.1, True, 1, 1), (3, True, 3, 3), (60, True, 30, 5)],
)
def test_changed_documents_wait_longer_if_many_mismatches_are_compared_with_them(
    duration: float, mismatches: bool, pause: float, in_sync: float
) -> None:
    assert pause_after_changes(duration, mismatches, False, TUNING) == pause
    assert pause_after_changes(duration, mismatches, True, TUNING) == in_sync


KEPT = NamespacePair(Namespace("d", "kept"), Namespace("d", "kept"))
SELECTION = Scope(NamespaceFilter(({"database": "d", "collections": ["kept", "dropped"]},)))


def notes(pairs: set[NamespacePair], **saved: Any) -> list[str]:
    """Return the notes of a check of d.kept and d.dropped about its selection.

    `pairs` are the collections that exist, and `saved` are fields of the saved record.
    """
    added: list[str] = []
    record: dict[str, Any] = {"generation": 0, "planned": False, "request": Request(SELECTION)}
    store: Any = SimpleNamespace(
        record=SimpleNamespace(**{**record, **saved}), add_note=added.append
    )
    sides: Any = SimpleNamespace(tuning=TUNING)
    subject: Any = None
    Check(subject, sides, store, 0.0, lambda point, name: None, StopToken())._check_selection(pairs)
    return added


def test_a_new_check_notes_selected_names_that_do_not_exist() -> None:
    (note,) = notes({KEPT})
    assert "d.dropped was selected, but when the check began, it existed on neither" in note
    with pytest.raises(OperationError, match="No collection or view"):
        notes(set())


@pytest.mark.parametrize("saved", [{"planned": True}, {"generation": 1}])
def test_a_continued_check_ignores_collections_dropped_since_it_began(
    saved: dict[str, Any],
) -> None:
    assert notes({KEPT}, **saved) == []
    assert notes(set(), **saved) == []
