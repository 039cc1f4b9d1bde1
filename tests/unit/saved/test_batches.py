"""Many documents are saved by a few commands that respect the server's size limits."""

from __future__ import annotations

from syncsvc.saved.batches import MOST_BYTES, MOST_SAVED, batches


def test_batches_are_bounded_by_number_and_size() -> None:
    small = [{"_id": n} for n in range(MOST_SAVED + 1)]
    assert [len(each) for each in batches(small)] == [MOST_SAVED, 1]
    large = [{"_id": n, "validator": "v" * (MOST_BYTES * 2 // 5)} for n in range(5)]
    assert [len(each) for each in batches(large)] == [2, 2, 1]
    huge = [{"_id": n, "validator": "v" * MOST_BYTES} for n in range(2)]
    assert [len(each) for each in batches(huge)] == [1, 1]
    assert list(batches([])) == []
