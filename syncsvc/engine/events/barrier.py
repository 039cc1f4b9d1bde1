"""Has a definition event applied once, when all instances have applied all events before it, and none has gone past it.

Each instance that comes to such an event applies what it has of the events before, saves its position there, and then
tells the event's resume token as its barrier. The one that coordinates waits until all have told it, applies the event,
and saves the token as its own barrier, which lets the others go on; they read anew what was changed of the collections.

A token stands for its position in the stream: all instances see the same order, and the text of the tokens has it, too.
So whoever is started again needs to know nothing else: nobody is before the newest barrier that was let go, since each
had saved its position there, and a barrier that is not newer than that one is passed without a wait, and without
applying the event again. Nor do events with one token make trouble, which shards may log of one change at one moment:
the first of them is applied, and the others are not newer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncsvc.engine.run.instances import Instances
from syncsvc.saved.registry import Registry
from syncsvc.saved.run import RunRecord, RunStore
from verifier.runtime.tasks import StopToken


class Barrier:
    """Of one instance; the one that is alone just applies."""

    def __init__(
        self, run: RunStore, registry: Registry, instances: Instances, stop: StopToken
    ) -> None:
        self._run = run
        self._registry = registry
        self._instances = instances
        self._stop = stop

    def take(self, token: dict[str, Any], apply: Callable[[], None]) -> None:
        """Return when the event with that token is applied, by this instance or the one that coordinates."""
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
        # Any of them may have withheld indexes.
        self._registry.reload(self._stop)
        apply()
        self._run.update(barrier=token_text)

    def _wait_for_release(self, token_text: str) -> None:
        if not is_at(self._run.record, token_text):
            self._run.update(barrier=token_text)
        self._instances.wait_for_coordinator(lambda other: is_at(other, token_text), self._stop)
        self._registry.reload(self._stop)


def is_at(record: RunRecord, token_text: str) -> bool:
    """Whether that instance has come to the event with that token, or further."""
    return record.barrier is not None and record.barrier >= token_text
