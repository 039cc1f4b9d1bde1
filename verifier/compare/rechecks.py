"""Assigns each new recheck to the generation after the current one.

A generation is one pass of a check. A recheck is a saved request to compare a document, or a whole collection, again. A
document that changes several times before the next generation begins needs only one recheck, whichever cluster reports
the changes. It needs no recheck if its whole collection is compared again. To detect both cases, the saved rechecks are
also kept in memory, up to a maximum number. Beyond that number, a recheck may be saved twice; the second save changes
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from verifier.cluster.namespace import Namespace
from verifier.compare.store import CheckStore
from verifier.compare.task import Recheck


class Rechecks:
    """The rechecks for the next generation, added by tasks and by the readers of change events.

    The next generation never begins while a thread adds rechecks.
    """

    def __init__(self, store: CheckStore, most_remembered: int) -> None:
        self._most_remembered = most_remembered
        self._store = store
        self._changed = threading.Condition()  # guards every change of the fields below
        self._adding = 0
        self._beginning = False
        self._changed_any = False
        # The rechecks saved for the next generation, as far as they are remembered.
        self._documents: dict[Namespace, set[bytes]] = {}
        self._remembered = 0
        self._collections: set[Namespace] = set()

    @property
    def of_changes(self) -> bool:
        """Return whether the next generation compares documents or collections because they have changed.

        Return False if the next generation only compares earlier differences again. After a restart, the reason is
        unknown, and any saved recheck counts as a change (see `resume`).
        """
        return self._changed_any

    def add(self, rechecks: Iterable[Recheck]) -> None:
        """Save rechecks for the next generation, except those that earlier calls have made unnecessary.

        That is, those known to be saved, and those of changed documents whose whole collection is compared again.
        Raises the driver's errors, the errors of a save (see CheckStore), and `Cancelled`.
        """
        listed = list(rechecks)
        if listed:
            with self._addition() as generation:
                new = [each for each in listed if not self._is_known(each)]
                self._store.add_rechecks(generation, new)
                self._remember(new)

    def resume(self) -> None:
        """Set `of_changes` to True if an earlier process has saved any recheck for the next generation.

        Raises the driver's errors, and `Cancelled`.
        """
        left = self._store.has_rechecks(self._store.record.generation + 1)
        with self._changed:
            self._changed_any |= left

    def begin_next(self, **changes: Any) -> bool:
        """Save that the next generation begins. Rechecks that are added later belong to the generation after it.

        `changes` are further fields of the record to save. Waits until no other thread adds rechecks. Returns whether
        this process added rechecks of whole collections for the generation that begins. Raises OperationError
        Superseded if another process has taken over the check, the errors of a save (see CheckStore), the driver's
        errors, and `Cancelled`.
        """
        with self._changed:
            self._beginning = True
            try:
                while self._adding:
                    self._changed.wait()
                self._store.update(generation=self._store.record.generation + 1, **changes)
                self._changed_any = False
                of_collections = bool(self._collections)
                self._documents, self._remembered, self._collections = {}, 0, set()
                return of_collections
            finally:
                self._beginning = False
                self._changed.notify_all()

    def _is_known(self, recheck: Recheck) -> bool:
        namespace, digest, mismatched = recheck.id
        if mismatched:
            # This recheck also holds the time since which the document differs, so it must be saved.
            return False
        if namespace.owner in self._collections:
            return True
        known = self._documents.get(namespace)
        return known is not None and digest in known

    def _remember(self, saved: Iterable[Recheck]) -> None:
        with self._changed:
            for each in saved:
                namespace, digest, mismatched = each.id
                if mismatched:
                    continue
                self._changed_any = True
                if not digest:
                    self._collections.add(namespace)
                elif self._remembered < self._most_remembered:
                    self._documents.setdefault(namespace, set()).add(digest)
                    self._remembered += 1

    @contextmanager
    def _addition(self) -> Iterator[int]:
        """Yield the number of the next generation, which cannot begin during the `with` block."""
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
