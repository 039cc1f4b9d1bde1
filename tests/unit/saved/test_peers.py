"""Tests which instances lack a command that all need, and whose options differ, according to the saved records."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.saved.peers import awaited, differences
from syncsvc.saved.run import RunRecord
from syncsvc.state import State
from tests.unit.preflight.values import options
from tests.unit.syncsvc.records import run_record

NAMES = ("a", "b", "c")


def of(instance: str, **fields: Any) -> RunRecord:
    return run_record(instance=instance, instances=NAMES, **fields)


@pytest.mark.parametrize(
    "records, missing",
    [
        ([of("a")], [("b", "start"), ("c", "start")]),
        ([of(each) for each in NAMES], []),
        ([of("a", state=State.PAUSED), of("b"), of("c")], [("a", "resume")]),
        ([of("a", attempt=1), of("b", state=State.FAILED), of("c")], [("b", "resume")]),
        (
            [of("a"), of("b", state=State.COMMITTING), of("c", state=State.PAUSED)],
            [("a", "commit"), ("c", "resume")],
        ),
        (
            [of("a", state=State.COMMITTED), *(of(each, state=State.COMMITTING) for each in "bc")],
            [],
        ),
        (
            [of("a", state=State.REVERSING, reversals=1)]
            + [of(each, state=State.COMMITTED) for each in "bc"],
            [("b", "reverse"), ("c", "reverse")],
        ),
        (
            [of("a", state=State.RESETTING), of("b", state=State.PAUSED)],
            [("b", "reset")],
        ),
        ([of("a", reversals=1), of("b", reversals=1), of("c", reversals=1)], []),
    ],
)
def test_instances_that_miss_a_command_are_listed(
    records: list[RunRecord], missing: list[tuple[str, str]]
) -> None:
    assert list(awaited(NAMES, records)) == missing


def test_differing_options_are_listed_by_instance() -> None:
    others = [of("a"), of("b", options=options(reversible=True, verification=False))]
    assert differences(options(), NAMES, others) == {"b": ["reversible", "verification"]}
    sharding = {"createSupportingIndexes": False, "shardingEntries": []}
    assert differences(options(sharding=sharding), NAMES, others[:1]) == {"a": ["sharding"]}
    assert differences(options(), ("a", "b"), others[:1]) == {"a": ["shards of the source"]}
    named = options(instances=("a", "b"))
    assert differences(named, ("a", "b"), others[:1]) == {"a": ["instances"]}
