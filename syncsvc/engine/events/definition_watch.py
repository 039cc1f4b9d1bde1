"""Detects changes of definitions on a source before 6.0, whose change events do not report them.

Compares the present definitions of collections and indexes with those listed at the start. Views are not compared,
because the commit copies their definitions anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import uniform
from time import monotonic

from syncsvc.engine.run.context import RunContext
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.figures.progress import WarningKind
from syncsvc.indexing import Target, destined
from syncsvc.saved.registry import CollectionRecord
from syncsvc.state import Phase
from verifier.cluster.inventory import list_collections
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.definitions import compare_definitions
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import SLOW_POLL, StopToken

# A comparison sends one command per collection. If it takes long, the pause after it is this many times as long, which
# bounds the load on a source with thousands of collections.
_PAUSE_FACTOR = 9.0
# How many changes a message names.
_MOST_NAMED = 10

_COMPARED_IN = (Phase.COPYING, Phase.INDEXING, Phase.APPLYING)

# What happened to a collection, index or option, and how to undo it.
_CHANGES = {
    Difference.EXTRA: ("was created", "drop it"),
    Difference.MISSING: ("was dropped", "create it again as it was"),
    Difference.CONTENT: ("was changed", "change it back"),
}
_OPTION_CHANGES = {
    Difference.EXTRA: ("was set", "set it back with collMod"),
    Difference.MISSING: ("was unset", "set it again with collMod"),
    Difference.CONTENT: ("was changed", "change it back with collMod"),
}


class DefinitionWatch:
    """Compares the definitions of a source before 6.0 again and again, alongside the copy and change event application.

    Does nothing for sources from 6.0 on. `run` compares in the thread that calls it.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._unchanged = context.source_facts.reports_ddl

    @property
    def unchanged(self) -> bool:
        """Return whether the newest comparison found no change; False before the first one, always True from 6.0 on."""
        return self._unchanged

    def run(self, stop: StopToken) -> None:
        """Compare until stopped, and warn for as long as a definition differs from the listed one."""
        if self._context.source_facts.reports_ddl:
            return
        try:
            while True:
                if self._context.run.record.phase in _COMPARED_IN:
                    stop.sleep(self._compare(stop))
                else:
                    stop.sleep(SLOW_POLL)
        finally:
            # No other thread ends this warning.
            self._context.progress.end_warning(WarningKind.DEFINITIONS_CHANGED)

    def check(self, stop: StopToken) -> None:
        """Raise OperationError UnsupportedChange if a definition of the source differs from the listed one."""
        if self._context.source_facts.reports_ddl:
            return
        found = self._changed(stop)
        if found:
            raise OperationError(
                UNSUPPORTED_CHANGE, f"{_named(found, change_of)}. {self._unreported()}"
            )

    def _compare(self, stop: StopToken) -> float:
        """Compare once, begin or end the warning, and return how long to pause afterwards, in seconds."""
        began = monotonic()
        found = self._changed(stop)
        # In this order, so that canCommit is never true while the warning is shown.
        if found:
            self._unchanged = False
            self._context.progress.warn(WarningKind.DEFINITIONS_CHANGED, self._warning(found))
        else:
            self._context.progress.end_warning(WarningKind.DEFINITIONS_CHANGED)
            self._unchanged = True
        interval = self._context.tuning.definition_interval
        pause = max(interval, _PAUSE_FACTOR * (monotonic() - began))
        return pause * uniform(0.8, 1.2)

    def _changed(self, stop: StopToken) -> list[DefinitionMismatch]:
        listed = read(
            lambda: list(list_collections(self._context.source_client, self._context.selection)),
            stop,
        )
        return changes(self._context.registry, listed, self._context.target)

    def _warning(self, found: Sequence[DefinitionMismatch]) -> str:
        return (
            f"{_named(found, change_of)}. {self._unreported()} A commit is not possible until this is undone on the "
            f"source ({_named(found, remedy_of)}); then this warning ends. To keep the change instead, reset "
            "the sync (POST /api/v1/reset) and start it again."
        )

    def _unreported(self) -> str:
        version = self._context.source_facts.dotted_version
        return (
            f"A source of version {version} does not report such changes, so they were not applied to the "
            "destination."
        )


def changes(
    records: Iterable[CollectionRecord], listed: Iterable[CollectionSpec], target: Target
) -> list[DefinitionMismatch]:
    """Return the differences between the saved definitions and the listed ones; empty if there are none.

    Pure. Collections that are not listed any more are left out: dropping and renaming have events.
    """
    now = {each.namespace: destined(each, target) for each in listed if each.kind is not Kind.VIEW}
    before = [each.definition for each in records if each.definition.namespace in now]
    return compare_definitions(before, now.values())


def change_of(mismatch: DefinitionMismatch) -> str:
    """Return a text that says what was done on the source, such as "index a_1 of db.c was dropped". Pure."""
    return f"{_subject(mismatch)} {_words(mismatch)[0]}"


def remedy_of(mismatch: DefinitionMismatch) -> str:
    """Return a text that says how to undo the change, such as "index a_1 of db.c: create it again as it was". Pure."""
    return f"{_subject(mismatch)}: {_words(mismatch)[1]}"


def _subject(mismatch: DefinitionMismatch) -> str:
    kinds = {Aspect.INDEX: "index", Aspect.OPTION: "option"}
    kind = kinds.get(mismatch.aspect)
    if kind is None:
        return str(mismatch.namespace)
    return f"{kind} {mismatch.component} of {mismatch.namespace}"


def _words(mismatch: DefinitionMismatch) -> tuple[str, str]:
    words = _OPTION_CHANGES if mismatch.aspect is Aspect.OPTION else _CHANGES
    return words[mismatch.difference]


def _named(found: Sequence[DefinitionMismatch], words: Callable[[DefinitionMismatch], str]) -> str:
    more = f"; and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return "; ".join(map(words, found[:_MOST_NAMED])) + more
