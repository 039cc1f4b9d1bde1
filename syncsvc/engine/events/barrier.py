"""Coordinates the instances at a DDL event: one applies it, after all earlier and before all later events.

Each instance that reaches a DDL event applies its share of the events before it, saves its position, and then publishes
the event's resume token as its barrier (`RunRecord.barrier`). The coordinator waits until all other instances have
published the token, applies the event, and saves the token as its own barrier. The other instances then reload the
registry, and continue.

All instances read the events in the same order, and comparing resume tokens as text gives this order. So a restarted
instance needs no other state: an event whose token is not after the coordinator's saved barrier has been applied, and
is passed without waiting. Several shards may log one change at the same moment, as events with the same token. The
first of these events is applied, and the others are passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncsvc.engine.run.instances import Instances
from syncsvc.saved.registry import Registry
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_store import RunStore
from verifier.runtime.tasks import StopToken


class Barrier:
    """Makes one instance wait for the others at DDL events.

    An instance that runs alone applies an event without waiting.
    """

    def __init__(
        self, run: RunStore, registry: Registry, instances: Instances, stop: StopToken
    ) -> None:
        self._run = run
        self._registry = registry
        self._instances = instances
        self._stop = stop

    def take(self, token: dict[str, Any], apply: Callable[[], None]) -> None:
        """Wait until the DDL event with the resume token `token` is applied to the destination.

        The coordinator, and an instance that runs alone, call `apply`, which applies the event; the coordinator skips
        an event that is already applied. Every other instance waits for the coordinator.
        """
        token_text = str(token["_data"])
        if not self._run.record.instances:
            apply()
        elif self._run.record.coordinates:
            self._let_all_go(token_text, apply)
        else:
            self._wait_for_release(token_text)

    def _let_all_go(self, token_text: str, apply: Callable[[], None]) -> None:
        if is_at(self._run.record, token_text):
            return
        self._instances.wait_for_all(lambda other: is_at(other, token_text), self._stop)
        # Any instance may have withheld indexes.
        self._registry.reload(self._stop)
        apply()
        self._run.update(barrier=token_text)

    def _wait_for_release(self, token_text: str) -> None:
        if not is_at(self._run.record, token_text):
            self._run.update(barrier=token_text)
        self._instances.wait_for_coordinator(lambda other: is_at(other, token_text), self._stop)
        self._registry.reload(self._stop)


def is_at(record: RunRecord, token_text: str) -> bool:
    """Return whether the instance of `record` has reached or passed the DDL event with this resume token (as text).

    For the coordinator: whether it has applied the event, or a later one.
    """
    return record.barrier is not None and record.barrier >= token_text
