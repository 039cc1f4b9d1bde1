"""Reverses a committed sync: the former destination becomes the source.

The commit prepares the reversal while users write to neither cluster and both hold the same data. So nothing is copied:
the new destination has the same collections as the new source, under the same names (apart from the renames of
`namespaceRemap`, which now apply in the other direction), and every later change arrives as a change event, including
the changes made by the later steps of the commit. Only the definitions of the new destination are not stand-ins yet:
they are weakened in place, so that only deferred indexes (see `deferral.deferred_names`) must be built again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.definitions.standin import prepared
from syncsvc.engine.late_writes import Change, first_written, names_of
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import OLD_SOURCE_WRITTEN
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase
from verifier.cluster.bounds import answered_soon
from verifier.cluster.changes import ChangeReader, ChangeStream, start_position
from verifier.cluster.cluster import Cluster
from verifier.cluster.inventory import list_collections, list_uuids
from verifier.cluster.namespace import Namespace, some_of
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.cluster.specification import Kind
from verifier.cluster.times import Position
from verifier.cluster.writer import MAJORITY
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# The DDL operations that a reversal runs on the old source, in `weaken_definitions`.
WEAKENING = frozenset({"modify", "createIndexes", "dropIndexes"})
# How long the change stream of the old source may stand still, in seconds. The stream of an idle sharded cluster stands
# still for up to 20 seconds: it waits for the config servers. They write a no-op every 10 seconds, but leave one out if
# they have written something else since the last one.
_LONGEST_STALL = 25.0
# The fields about repairs that a reversal resets, because they belong to the other direction. The numbers of the rounds
# of repairs continue.
_NO_REPAIRS = {
    "commit_repairs": 0,
    "repair_requests": 0,
    "repair_requests_met": 0,
    "repaired_documents": 0,
    "repaired_definitions": 0,
}


def prepare_reversal(context: RunContext, stop: StopToken) -> Position:
    """Save the registry that a reversed sync would use, and return the position at which the reversed sync would start.

    The position belongs to the destination's change stream, and the caller must save it. The call may be repeated as
    long as users do not write; it replaces the registry that an earlier call has saved.
    """
    stream = ChangeStream(context.destination_client, context.destination_facts)
    start = read(lambda: start_position(stream), stop)
    uuids = read(lambda: list_uuids(context.destination_client), stop)
    context.registry.save_next(mirrored(context.registry, uuids))
    context.observe(Point.REVERSAL_SAVED, "")
    return start


def mirrored(
    records: Iterable[CollectionRecord], uuids: Mapping[Namespace, bytes]
) -> Iterator[CollectionRecord]:
    """Convert the collection records of a sync to those of its reversal, with the destination's definitions and UUIDs.

    The two names of each collection are swapped. No collection has a temporary name, because all events are applied.
    `uuids` maps names on the destination to UUIDs; a record whose name is missing there is left out. The definitions
    are those after the first step of the cut-over (`standin.prepared`). The later steps let documents expire, make
    indexes unique and build deferred indexes; these changes arrive as change events.
    """
    for record in records:
        uuid = uuids.get(record.definition.namespace)
        if uuid is not None:
            definition = replace(
                prepared(record.definition), namespace=record.source_name, uuid=uuid
            )
            # A repair uses `destination_uuid` to recognize a collection that users created again on the new
            # destination.
            yield replace(
                record,
                definition=definition,
                source_name=record.definition.namespace,
                # Both clusters have the same shard keys, or neither is sharded.
                source_key=definition.shard_key or None,
                destination_uuid=record.uuid,
            )


def coordinator_reversal(
    record: RunRecord, reverse_start: Position, others: Iterable[RunRecord]
) -> dict[str, Any]:
    """Return the new values of the fields, except `state`, that a reversal changes in the coordinator's record.

    `reverse_start` is the position in the new source's change stream at which the reversed sync starts. `others` are
    the run records of the other instances.
    """
    return {
        "phase": Phase.REVERSING,
        "reversals": record.reversals + 1,
        "start": reverse_start,
        "position": reverse_start,
        # Nothing is copied, so the copy ends where the reversed sync starts.
        "copy_end": reverse_start.time,
        "commit_time": None,
        "steps": (),
        "can_write": False,
        "late_findings": None,
        "reverse_start": None,
        "committed": record.position,
        "barrier": None,
        "attempt": _reversal_attempt(record, others),
        "caught_up": False,
        "principals": None,
        **_NO_REPAIRS,
    }


def follower_reversal(record: RunRecord, others: Iterable[RunRecord]) -> dict[str, Any]:
    """Return the new values of the fields, except `state`, that a reversal changes in a follower's record.

    A follower is an instance that is not the coordinator. `start` and `position` become None, until the follower copies
    the coordinator's start position. `others` are the run records of the other instances.
    """
    return {
        "phase": Phase.REVERSING,
        "reversals": record.reversals + 1,
        "start": None,
        "position": None,
        "copy_end": None,
        "can_write": False,
        "barrier": None,
        "attempt": _reversal_attempt(record, others),
        **_NO_REPAIRS,
    }


def _reversal_attempt(record: RunRecord, others: Iterable[RunRecord]) -> int:
    """Return the highest `attempt` of the other instances that have already begun this reversal; 0 if none has.

    `attempt` counts the resumes after failures. These instances may have failed since, and been resumed. They ignore
    failures of earlier attempts, so they would not notice a failure of this instance if it began with a lower number.
    """
    begun = (each.attempt for each in others if each.reversals > record.reversals)
    return max(begun, default=0)


def weaken_definitions(context: RunContext, stop: StopToken) -> None:
    """Give the destination's collections stand-in definitions, and the indexes that the registry lists for them.

    Views, and collections that are not in the registry, are left unchanged. The call may be repeated before any event
    is applied.
    """
    catalog = catalog_of(context, stop)
    found = read(lambda: list(list_collections(context.destination_client)), stop)
    for definition in found:
        stop.check()
        record = context.registry.at(definition.namespace)
        if record is None or definition.kind is Kind.VIEW:
            continue
        # Use the current definition, not the saved one: an index that users have changed needs other commands.
        catalog.weaken(definition)
        catalog.reconcile_indexes(record.current_definition)
        context.observe(Point.COLLECTION_WEAKENED, str(definition.namespace))


def replace_views(context: RunContext, stop: StopToken) -> None:
    """Save the destination's views as those of the sync, instead of the views of the former destination.

    The names saved by the former sync are names on the new source. All views of the destination belong to the sync,
    because a reversible sync shares the destination with no other data. The call may be repeated before any event is
    applied.
    """
    client = context.destination_client
    context.views.replace_all(read(lambda: list(list_collections(client, kind=Kind.VIEW)), stop))


def refuse_lost(source: Cluster, reverse_start: Position, stop: StopToken) -> None:
    """Raise OperationError OplogWindowExceeded if `source` no longer has all change events after `reverse_start`.

    `reverse_start` is the position at which a reversed or resumed sync would read on. Also raises the driver's errors.
    """
    next(ChangeReader(ChangeStream(source.client, source.facts), reverse_start, stop).pages())


def refuse_written(
    old_source: Cluster, since: Position, stop: StopToken, ignored: Container[str] = ()
) -> None:
    """Raise OperationError OldSourceWritten if users changed anything on the old source after the commit.

    `since` is the position in the old source's change stream at which the commit ended. Later writes exist only on the
    old source, and the reversed sync would overwrite them. DDL operations in `ignored`, such as `WEAKENING`, do not
    count. Called by commands that an operator waits for: if the old source does not answer soon, has no working
    majority, or does not return its newest changes, raises the driver's errors or OperationError ClusterUnreachable.
    Raises OperationError OplogWindowExceeded if the oplog of the old source does not reach back to `since`.
    """

    def judge(changes: Iterable[Change]) -> Collection[Namespace]:
        return names_of(each for each in changes if each.operation not in ignored)

    # This fails if a majority of the members does not confirm the no-op soon.
    with answered_soon():
        now = append_note(old_source.client, stop, MAJORITY)
    if written := first_written(old_source, since, now, judge, stop, _LONGEST_STALL):
        raise OperationError(
            OLD_SOURCE_WRITTEN,
            f"Since the commit, users wrote to collections on {old_source.name}: {some_of(written)}.",
        )
