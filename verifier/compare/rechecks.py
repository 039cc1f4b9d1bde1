"""Into which generation new rechecks go: always the one after the current."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from verifier.compare.store import CheckStore
from verifier.compare.task import Recheck


class Rechecks:
    """Shared by the recorders and the tasks. A generation begins between additions, never within one."""

    def __init__(self, store: CheckStore) -> None:
        self._store = store
        self._changed = threading.Condition()  # guards everything below
        self._adding = 0
        self._beginning = False
        self._changed_any = False

    @property
    def of_changes(self) -> bool:
        """Whether the next generation has something to look at that was changed, not only what was found different."""
        return self._changed_any

    def add(self, rechecks: Iterable[Recheck]) -> None:
        """Save them for the next generation. Raises the driver's errors."""
        listed = list(rechecks)
        if listed:
            with self._addition() as generation:
                self._store.add_rechecks(generation, listed)
                self._changed_any |= not all(each.id.mismatched for each in listed)

    def resume(self) -> None:
        """Learn what an earlier process left for the next generation."""
        self._changed_any = self._store.has_rechecks(self._store.record.generation + 1)

    def begin_next(self, **changes: Any) -> None:
        """Save that the next generation begins; what is found from now on is for the one after it."""
        with self._changed:
            self._beginning = True
            try:
                while self._adding:
                    self._changed.wait()
                self._store.update(generation=self._store.record.generation + 1, **changes)
                self._changed_any = False
            finally:
                self._beginning = False
                self._changed.notify_all()

    @contextmanager
    def _addition(self) -> Iterator[int]:
        """The generation that is the next one for the length of a block."""
        with self._changed:
            while self._beginning:
                self._changed.wait()
            self._adding += 1
            generation = self._store.record.generation + 1
        try:
            yield generation
        finally:
            with self._changed:
                self._adding -= 1
                self._changed.notify_all()
