"""Tests when the verification of a sync compares changed documents again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from bson.timestamp import Timestamp

from syncsvc.engine.sync_subject import SyncSubject, is_settled
from syncsvc.figures.progress import OtherInstance, Progress, ProgressSnapshot
from syncsvc.state import Phase, State
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import START, run_record
from verifier.runtime.tasks import StopToken

NOW = START.time.time
APPLYING = run_record(instance="a", phase=Phase.APPLYING, position=START)
SHARED = replace(APPLYING, instances=("a", "b", "c"))


def other(name: str, applied_until: int | None) -> OtherInstance:
    return OtherInstance(name, State.RUNNING, Phase.APPLYING, applied_until, 0.0)


@pytest.mark.parametrize("lag, settled", [(0, True), (30, True), (31, False), (None, False)])
def test_changed_documents_are_compared_while_the_lag_is_short(
    lag: int | None, settled: bool
) -> None:
    assert is_settled(APPLYING, ProgressSnapshot(lag_seconds=lag)) is settled


def test_changed_documents_wait_for_the_end_of_a_commit() -> None:
    committing = replace(APPLYING, state=State.COMMITTING)
    assert is_settled(committing, ProgressSnapshot(lag_seconds=0))
    ending = replace(committing, commit_time=Timestamp(NOW, 1))
    assert not is_settled(ending, ProgressSnapshot(lag_seconds=0))


def test_changed_documents_wait_while_a_collection_is_copied() -> None:
    copying = ProgressSnapshot(lag_seconds=0, adopts_collection=True)
    assert not is_settled(APPLYING, copying)


@pytest.mark.parametrize("read_until, settled", [(NOW - 1, False), (NOW, True)])
def test_changed_documents_wait_until_the_events_of_a_copy_are_read(
    read_until: int, settled: bool
) -> None:
    progress = Progress()
    progress.set_lag(0)
    progress.set(adopted_until=Timestamp(NOW, 1))
    context = context_with(run=SimpleNamespace(record=APPLYING), progress=progress)
    subject = SyncSubject(context, Mock(), StopToken())
    assert subject.is_settled(Timestamp(read_until, 1)) is settled


@pytest.mark.parametrize(
    "others, settled",
    [
        ({"b": NOW - 5, "c": NOW}, True),
        ({"b": NOW - 30, "c": NOW + 60}, True),
        ({"b": NOW - 60, "c": NOW}, False),
        ({"b": NOW, "c": None}, False),
        ({"b": NOW}, False),
        ({}, False),
    ],
)
def test_changed_documents_are_compared_while_no_other_instance_is_far_behind(
    others: dict[str, int | None], settled: bool
) -> None:
    shown = tuple(other(name, until) for name, until in others.items())
    assert is_settled(SHARED, ProgressSnapshot(lag_seconds=1, others=shown)) is settled
    assert not is_settled(SHARED, ProgressSnapshot(lag_seconds=31, others=shown))


def test_changed_documents_wait_while_another_instance_is_paused() -> None:
    others = (other("b", NOW), replace(other("c", NOW), state=State.PAUSED))
    assert not is_settled(SHARED, ProgressSnapshot(lag_seconds=1, others=others))
