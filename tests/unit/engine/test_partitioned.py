"""Tests which instances know what all instances of a sync have copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncsvc.engine.copying.partitioned import copied_in_all
from syncsvc.figures.progress import CopiedAmount
from syncsvc.state import Phase
from tests.unit.syncsvc.records import collection_record, run_record

INSTANCES = ("coordinator", "b")


@pytest.mark.parametrize(
    "instance, phase, known_in_all",
    [
        ("coordinator", Phase.COPYING, True),
        ("coordinator", Phase.INDEXING, True),
        ("b", Phase.COPYING, False),
        # The coordinator may still copy.
        ("b", Phase.INDEXING, False),
        ("b", Phase.APPLYING, True),
    ],
)
def test_an_instance_knows_the_copy_of_all_when_their_records_are_up_to_date(
    instance: str, phase: Phase, known_in_all: bool
) -> None:
    records = [collection_record(copied=copied, documents=copied // 10) for copied in (100, 200)]
    record = run_record(instance=instance, instances=INSTANCES, phase=phase)
    found = CopiedAmount(300, 30) if known_in_all else None
    assert copied_in_all(record, records) == found
    assert copied_in_all(replace(record, instances=()), records) is None
    assert copied_in_all(replace(record, reversals=1), records) is None
