"""A DDL event is applied once, after all instances have reached it, even if an instance is restarted.

The barrier of an instance is the resume token of the last DDL event that the instance has reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from syncsvc.engine.events.barrier import Barrier
from syncsvc.engine.run.instances import Instances
from syncsvc.figures.progress import Progress
from syncsvc.saved.run import RunRecord
from tests.unit.syncsvc.records import run_record
from verifier.runtime.tasks import StopToken

BOTH = ("a", "b")


class Run:
    """A fake RunStore, which saves nothing."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    def update(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)


class Others:
    """A fake of the other instances, with one instance `name`.

    Each call of `others` or `coordinator` returns the record of this instance with the next one of `barriers`; the last
    one is repeated. `looks` is the number of calls.
    """

    def __init__(self, name: str, *barriers: str | None) -> None:
        self._name = name
        self._barriers = list(barriers)
        self.looks = 0

    def others(self, stop: StopToken) -> list[RunRecord]:
        barrier = self._barriers[min(self.looks, len(self._barriers) - 1)]
        self.looks += 1
        return [run_record(instance=self._name, instances=BOTH, barrier=barrier)]

    def coordinator(self, stop: StopToken) -> RunRecord:
        return self.others(stop)[0]


class Registry:
    def __init__(self) -> None:
        self.reloads = 0

    def reload(self, stop: StopToken) -> None:
        self.reloads += 1


class One:
    """An instance that reaches barriers. Its run record, registry and other instances are fakes.

    `applied` contains a number for each applied event: how many times the others had been read before the event.
    """

    def __init__(
        self, name: str, barrier: str | None, others: Others, instances: tuple[str, ...] = BOTH
    ) -> None:
        self.run = cast(Any, Run(run_record(instance=name, instances=instances, barrier=barrier)))
        self.registry = cast(Any, Registry())
        self.applied: list[int] = []
        peers: Any = others
        waits = Instances(self.run, peers, Progress())
        self._barrier = Barrier(self.run, self.registry, waits, StopToken())
        self._others = others

    def take(self, token: str) -> None:
        self._barrier.take({"_data": token}, lambda: self.applied.append(self._others.looks))


def test_a_single_instance_applies_an_event_immediately() -> None:
    alone = One("a", None, Others("b", None), instances=())
    alone.take("82")
    assert (alone.applied, alone.registry.reloads, alone.run.record.barrier) == ([0], 0, None)


def test_the_coordinator_waits_for_all_and_releases_them() -> None:
    coordinator = One("a", "81", Others("b", None, "81", "82"))
    coordinator.take("82")
    assert (coordinator.applied, coordinator.run.record.barrier) == ([3], "82")
    assert coordinator.registry.reloads == 1


@pytest.mark.parametrize("newest", ["82", "83"])
def test_a_released_event_is_not_applied_again(newest: str) -> None:
    coordinator = One("a", newest, Others("b", "82"))
    coordinator.take("82")
    assert (coordinator.applied, coordinator.run.record.barrier) == ([], newest)


def test_a_follower_publishes_its_barrier_and_waits() -> None:
    others = Others("a", None, "81", "82")
    follower = One("b", None, others)
    follower.take("82")
    assert (follower.applied, follower.run.record.barrier, others.looks) == ([], "82", 3)
    assert follower.registry.reloads == 1


def test_events_with_the_same_token_share_a_barrier() -> None:
    coordinator = One("a", None, Others("b", "82"))
    coordinator.take("82")
    coordinator.take("82")
    assert len(coordinator.applied) == 1
    follower = One("b", None, Others("a", "82"))
    follower.take("82")
    follower.take("82")
    assert follower.run.record.barrier == "82"
