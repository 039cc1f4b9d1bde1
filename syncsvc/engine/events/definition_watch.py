"""Detects changes of definitions on a source before MongoDB 6.0, whose change events do not report them.

Compares the current definitions of collections and indexes with the saved ones. The thread that passes events to the
lanes then applies the differences (`Unreported`). Views are not compared, because the commit copies their definitions
anyway.

Some changes cannot be applied, and prevent the commit: changes of time-series collections, whose measurements have no
events; and every change if several instances share the sync, because only an event could tell all instances when to
apply it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import uniform
from time import monotonic

from bson.timestamp import Timestamp

from syncsvc.engine.events.unreported import Listing, is_defined_as
from syncsvc.engine.run.context import RunContext
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.figures.progress import WarningKind
from syncsvc.rules.indexing import Target, destined
from syncsvc.saved.registry import CollectionRecord
from syncsvc.state import Phase
from verifier.cluster.inventory import list_collections
from verifier.cluster.namespace import Namespace, some_of
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.definitions import compare_definitions
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import SLOW_POLL, StopToken, wait_until
from verifier.runtime.waits import waiting

# A comparison sends one command per collection. If a comparison takes long, the pause after it is about this many times
# as long, which bounds the load on a source with thousands of collections.
_PAUSE_FACTOR = 9.0
# How many changes a message names.
_MOST_NAMED = 10

_COMPARED_IN = (Phase.COPYING, Phase.INDEXING, Phase.APPLYING)

# What happened to a collection, index or option, and how to undo it.
_CHANGES = {
    Difference.EXTRA: ("was created", "must be dropped"),
    Difference.MISSING: ("was dropped", "must be created again with the old definition"),
    Difference.CONTENT: ("was changed", "must be changed back"),
}
_OPTION_CHANGES = {
    Difference.EXTRA: ("was set", "must be set back with collMod"),
    Difference.MISSING: ("was unset", "must be set again with collMod"),
    Difference.CONTENT: ("was changed", "must be changed back with collMod"),
}
_APPLYING = (
    "New collections are copied, which takes longer if they are large. If the wait does not end, do not change "
    "definitions on the source any more, and see the other warnings."
)


@dataclass(frozen=True)
class Changed:
    """The changed definitions that a comparison has found.

    `refused` contains the changes that cannot be applied to the destination. `applicable` maps the names of other
    collections to their UUIDs: collections that are new, changed or not completely copied.
    """

    refused: Sequence[DefinitionMismatch]
    applicable: dict[Namespace, bytes]

    def __bool__(self) -> bool:
        return bool(self.refused or self.applicable)


class DefinitionWatch:
    """Compares the definitions on a source before MongoDB 6.0 with the saved ones, to find DDL without change events.

    `run` compares periodically, from the copy until the commit, in the thread that calls it. `wait_until_applied` and
    `check` compare at once, for the commit. Other threads may use everything except `run`. Does nothing for newer
    sources.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._unchanged = context.source_facts.reports_ddl
        # Held during a comparison, so that the result of an older one never replaces that of a newer one.
        self._comparing = threading.Lock()
        self._listing: Listing | None = None

    @property
    def unchanged(self) -> bool:
        """Return whether the newest comparison found nothing (see `Changed`); False before the first comparison.

        Always True for a source from 6.0 on.
        """
        return self._unchanged

    @property
    def listing(self) -> Listing | None:
        """Return the collections whose changed definitions must be applied to the destination; None if there are none.

        The newest comparison found these collections. Also None if it did not run during change event application.
        """
        return self._listing

    def run(self, stop: StopToken) -> None:
        """Compare the source's definitions with the saved ones, periodically until stopped.

        Warn for as long as there is a change that cannot be applied. Returns immediately for a source from 6.0 on.
        """
        if self._context.source_facts.reports_ddl:
            return
        try:
            while True:
                phase = self._context.run.record.phase
                if phase in _COMPARED_IN:
                    began = monotonic()
                    self._compare(stop)
                    self._rest(self._pause(monotonic() - began), phase, stop)
                else:
                    stop.sleep(SLOW_POLL)
        finally:
            # Otherwise, the warning could stay after the watch has stopped.
            self._context.progress.end_warning(WarningKind.DEFINITIONS_CHANGED)

    def wait_until_applied(
        self, wait_until_past: Callable[[Timestamp], None], stop: StopToken
    ) -> None:
        """Wait until all changes of definitions that were made before the call are applied to the destination.

        Other threads must apply events meanwhile. `wait_until_past` is a function that waits until all events up to a
        cluster time of the source are applied. Returns immediately for a source from 6.0 on. Also returns immediately
        if a commit time is saved, because changes after that time are not applied; `check` finds them. Raises
        OperationError UnsupportedChange if there is a change that cannot be applied.
        """
        if (
            self._context.source_facts.reports_ddl
            or self._context.run.record.commit_time is not None
        ):
            return
        wait_until_past(append_note(self._context.source_client, stop))
        with waiting("The commit waits until changed definitions are applied", _APPLYING):
            wait_until(lambda: not self._compare_strictly(stop), stop, SLOW_POLL)

    def check(self, stop: StopToken) -> None:
        """Raise OperationError UnsupportedChange if a definition of the source differs from the saved one.

        All change events before the call must already be applied. A no-op for a source from 6.0 on.
        """
        if self._context.source_facts.reports_ddl:
            return
        changed = self._compare_strictly(stop)
        if changed:
            names = some_of(changed.applicable)
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"During the commit, these collections were created, or their definitions were changed: {names}. A "
                f"source of version {self._version} does not report such changes, so the changes were not applied to "
                "the destination.",
            )

    def _compare_strictly(self, stop: StopToken) -> Changed:
        """Compare the source's definitions with the saved ones once, publish the result, and return it.

        Raises OperationError UnsupportedChange if there is a change that cannot be applied.
        """
        changed = self._compare(stop)
        if changed.refused:
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"On the source, {_named(changed.refused, change_of)}. {self._reason}",
            )
        return changed

    def _compare(self, stop: StopToken) -> Changed:
        """Compare the source's definitions with the saved ones once, publish the result, and return it."""
        with self._comparing:
            changed = self._changed(stop)
            applies = changed.applicable and self._context.run.record.phase is Phase.APPLYING
            self._listing = self._dated(changed.applicable, stop) if applies else None
            self._publish(changed)
            return changed

    def _publish(self, changed: Changed) -> None:
        # Publish in this order, so that canCommit is never true while the warning is shown.
        self._unchanged = self._unchanged and not changed
        if changed.refused:
            warning = self._warning(changed.refused)
            self._context.progress.warn(WarningKind.DEFINITIONS_CHANGED, warning)
        else:
            self._context.progress.end_warning(WarningKind.DEFINITIONS_CHANGED)
        self._unchanged = not changed

    def _dated(self, collections: dict[Namespace, bytes], stop: StopToken) -> Listing:
        # The time is taken after the collections were listed. The second no-op makes the stream pass that time.
        time = append_note(self._context.source_client, stop)
        append_note(self._context.source_client, stop)
        return Listing(time, collections)

    def _pause(self, seconds: float) -> float:
        """Return the length of the pause, in seconds, after a comparison that took `seconds`."""
        # While changes are being applied, compare again soon: the definitions may be equal then.
        interval = SLOW_POLL if self._listing else self._context.tuning.definition_interval
        return max(interval, _PAUSE_FACTOR * seconds) * uniform(0.8, 1.2)

    def _rest(self, seconds: float, phase: Phase, stop: StopToken) -> None:
        """Sleep for `seconds`, but return early when the sync is no longer in `phase`.

        A new phase needs another comparison soon: a commit is possible only after a comparison made after the copy.
        """
        end = monotonic() + seconds
        while self._context.run.record.phase is phase and (left := end - monotonic()) > 0:
            stop.sleep(min(SLOW_POLL, left))

    def _changed(self, stop: StopToken) -> Changed:
        # Read the records before listing the collections: otherwise, a record that is saved in between would be
        # compared with an older listing.
        records = list(self._context.registry)
        listed = read(
            lambda: list(list_collections(self._context.source_client, self._context.selection)),
            stop,
        )
        target = self._context.target
        if self._context.run.record.instances:
            return Changed(changes(records, listed, target), {})
        series = [each for each in listed if each.kind is Kind.TIME_SERIES]
        return Changed(changes(records, series, target), applicable(records, listed, target))

    def _warning(self, found: Sequence[DefinitionMismatch]) -> str:
        return (
            f"On the source, {_named(found, change_of)}. {self._reason} A commit is not possible until the "
            f"changes are undone on the source ({_named(found, remedy_of)}); then this warning ends. To keep the "
            "changes, reset the sync (POST /api/v1/reset) and start it again."
        )

    @property
    def _reason(self) -> str:
        if self._context.run.record.instances:
            return (
                f"A source of version {self._version} does not report every change of a definition, so several "
                "instances cannot apply these changes to the destination."
            )
        return (
            f"A source of version {self._version} does not report changes of time-series collections, so these changes "
            "cannot be synced."
        )

    @property
    def _version(self) -> str:
        return self._context.source_facts.dotted_version


def changes(
    records: Iterable[CollectionRecord], listed: Iterable[CollectionSpec], target: Target
) -> list[DefinitionMismatch]:
    """Return the differences between the definitions in `records` and the current ones in `listed`.

    The result has the names on the source. `target` contains the settings by which definitions are changed for the
    destination. Views are left out. So are collections that the source no longer has, because their drops and renames
    have events.
    """
    now = {
        each.namespace: replace(destined(each, target), namespace=each.namespace)
        for each in listed
        if each.kind is not Kind.VIEW
    }
    before = [each.on_source for each in records if each.source_name in now]
    return compare_definitions(before, now.values())


def applicable(
    records: Iterable[CollectionRecord], listed: Iterable[CollectionSpec], target: Target
) -> dict[Namespace, bytes]:
    """Return the UUIDs, by name, of the source's listed collections that differ from their records.

    These are the collections that have no record, have another UUID or definition than in the record, or are not
    completely copied. Views and time-series collections are left out. `target` contains the settings by which
    definitions are changed for the destination. Has no side effects.
    """
    copied = {each.source_name: each.definition for each in records if each.is_copied}

    def is_equal(definition: CollectionSpec) -> bool:
        known = copied.get(definition.namespace)
        return (
            known is not None
            and known.uuid == definition.uuid
            and is_defined_as(known, destined(definition, target))
        )

    return {
        each.namespace: each.uuid
        for each in listed
        if each.kind is Kind.COLLECTION and each.uuid is not None and not is_equal(each)
    }


def change_of(mismatch: DefinitionMismatch) -> str:
    """Return a clause that describes a change on the source, such as "index a_1 of db.c was dropped"."""
    return f"{_subject(mismatch)} {_words(mismatch)[0]}"


def remedy_of(mismatch: DefinitionMismatch) -> str:
    """Return a clause that says how to undo a change, such as "index a_1 of db.c must be dropped"."""
    return f"{_subject(mismatch)} {_words(mismatch)[1]}"


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
