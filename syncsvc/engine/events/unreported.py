"""Applies changes of definitions for which a source before 6.0 sends no event.

`DefinitionWatch` lists the source's collections periodically. If a listed collection differs from its saved record,
this module makes the destination's collection equal to it, between two events:

- If the UUIDs of the listed collection and of the record are equal, the definition has changed. The indexes and options
  on the destination are changed, too.
- Otherwise, the name belongs to a collection that is not synced yet. It is copied from the source as it is now.

All events before the listing must be applied first, because they may concern an earlier collection of the same name.
From then on, the name means the listed collection, until an event drops or renames it. The events that follow are
applied to the copy, just as after the copy at the start of the sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.index_builds import build_indexes
from syncsvc.engine.definitions.source_lookup import find_named_on_source, has_name_on_source
from syncsvc.engine.definitions.standin import stand_in
from syncsvc.engine.events.renames import Renames
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import UNSUPPORTED_CHANGE
from syncsvc.rules.indexing import check, destined
from syncsvc.rules.repairing import option_change, unchangeable
from syncsvc.saved.registry import CollectionRecord
from syncsvc.source.filling import is_being_filled
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, same_document
from verifier.compare.definitions import compare_definitions
from verifier.compare.feed import Feed
from verifier.compare.mismatch import Aspect
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class Listing:
    """The UUIDs, by name, of the collections of the source that differ from their saved records.

    A collection without a record, or whose copy is not complete, differs, too. Views and time-series collections are
    left out. The collections were listed before the cluster time `time` of the source.
    """

    time: Timestamp
    collections: Mapping[Namespace, bytes] = field(default_factory=dict)


class Unreported:
    """Makes collections of the destination equal to those of the source, in the thread that passes events to lanes.

    Before each call of `apply`, all events that this thread has read must be applied. `feed` is notified of copied
    collections.
    """

    def __init__(
        self, context: RunContext, catalog: Catalog, renames: Renames, feed: Feed, stop: StopToken
    ) -> None:
        self._context = context
        self._catalog = catalog
        self._renames = renames
        self._feed = feed
        self._stop = stop
        # With a newer source, this is not needed: an interrupted copy is repeated when the event that caused it is
        # applied again.
        old = not context.source_facts.reports_ddl
        self._unfinished = [each for each in context.registry if old and not each.is_copied]

    def finish_copies(self) -> None:
        """Finish the copies that were incomplete when this object was created; a no-op after the first call.

        A collection that the source has dropped or renamed since is dropped on the destination instead. Call this
        before any event after the saved position is applied.
        """
        while self._unfinished:
            self._finish(self._unfinished.pop())

    def _finish(self, record: CollectionRecord) -> None:
        name = record.source_name
        if has_name_on_source(self._context, record.uuid, name, self._stop):
            self._copy(name, record.uuid)
        else:
            # The event of the drop or rename comes later.
            self._renames.drop(record)

    def apply(self, name: Namespace, uuid: bytes) -> None:
        """Make a collection of the destination equal to the source's collection with this name and this UUID.

        Do nothing in these cases:

        - The collections are already equal.
        - The source has dropped or renamed the collection: the change event about this follows.
        - The source is still filling the collection without change events: a later listing will contain it again.

        Raises OperationError if the destination cannot have this definition, the driver's errors, and `Cancelled`.
        """
        found = find_named_on_source(self._context, name, self._stop)
        if found is None or found.uuid != uuid:
            return
        record = self._context.registry.at(name)
        if record is not None and record.uuid == uuid:
            self._redefine(record, found)
        elif not self._is_being_filled(found):
            self._copy(name, uuid)

    def _is_being_filled(self, found: CollectionSpec) -> bool:
        return read(lambda: is_being_filled(self._context.source_client, found), self._stop)

    def _copy(self, name: Namespace, uuid: bytes) -> None:
        """Copy a collection of the source that is not synced yet, or continue to copy it.

        Before that, drop the destination's collections whose records have either this name or this UUID, but not both.
        """
        # Report the collections to the feed before the copy, and save the report, because after a restart the copy may
        # be complete. Report them again after the copy, because the verification may have compared them before the copy
        # was complete.
        others = list(self._others(name, uuid))
        names = [name, *(each.source_name for each in others)]
        self._feed.replaced(names)
        self._feed.flush()
        for each in others:
            self._renames.drop(each)
        self._renames.adopt(uuid, name)
        self._feed.replaced(names)
        self._context.progress.add(definitions_applied=1)

    def _others(self, name: Namespace, uuid: bytes) -> Iterator[CollectionRecord]:
        """Yield the record that has this name on the destination, and that of this UUID; omit one that has both."""
        registry = self._context.registry
        for record in (registry.at(name), registry.get(uuid)):
            if record is not None and (record.uuid, record.source_name) != (uuid, name):
                yield record

    def _redefine(self, record: CollectionRecord, found: CollectionSpec) -> None:
        """Give the destination's collection the source's definition `found`; a no-op if its record has it already.

        The new definition is saved after the options are changed, and when the indexes are built or withheld: if the
        process is killed before that, a later listing finds the difference again. Raises OperationError if the
        destination cannot have this definition.
        """
        check(found, self._context.target)
        wanted = replace(
            destined(found, self._context.target), shard_key=record.definition.shard_key
        )
        if is_defined_as(record.definition, wanted):
            return
        self._change_options(record, wanted)
        build_indexes(self._context, record, self._stop, wanted)
        self._context.observe(Point.REDEFINED, str(record.source_name))
        self._context.registry.change(record, definition=wanted)
        self._context.progress.add(definitions_applied=1)

    def _change_options(self, record: CollectionRecord, wanted: CollectionSpec) -> None:
        names = [*changed_options(record.definition, wanted)]
        fixed = unchangeable(wanted, names)
        if fixed:
            raise OperationError(
                UNSUPPORTED_CHANGE,
                f"On the source, options of {record.source_name} were changed that collMod cannot change on the "
                f"destination: {', '.join(fixed)}.",
            )
        self._catalog.modify(wanted.namespace, option_change(stand_in(wanted), names))


def is_defined_as(before: CollectionSpec, now: CollectionSpec) -> bool:
    """Return whether two definitions of a collection have the same options and indexes. Has no side effects.

    An option that is given with its default value differs from an absent one. In indexes, the types of numbers are
    ignored, because a server lists its indexes in two ways, with different types of numbers.
    """
    differing = compare_definitions([before], [now])
    indexes = (each for each in differing if each.aspect is Aspect.INDEX)
    return not [*indexes, *changed_options(before, now)]


def changed_options(before: CollectionSpec, now: CollectionSpec) -> Iterator[str]:
    """Yield the names of the options that differ between two definitions of a collection. Has no side effects."""
    old, new = before.options, now.options
    for name in sorted({*old, *new}):
        if name not in old or name not in new or not same_document(old[name], new[name]):
            yield name
