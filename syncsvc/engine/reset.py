"""Resets a sync: drops what it created on the destination, and restores write blocks and balancers.

Users and roles are kept if they were changed after the sync had created them (see `CreatedPrincipals.on`).

Every step is idempotent, and the run records are dropped last. Until then they have the state RESETTING, so a reset
that was killed continues when its process is restarted.

A source that does not answer delays a reset only if its write block or its balancer must be restored, and then only for
a minute: it may be gone for good. But a restarted process must connect to both clusters before it continues a reset.

If several instances share the run, the user sends the reset to each of them, and each stops its own work. The
coordinator does everything else. It drops nothing until all instances that were started have stopped, and drops the
run records of all instances at the end.
"""

from __future__ import annotations

import logging

from bson.binary import Binary
from pymongo.errors import PyMongoError

from syncsvc.engine.definitions.created import created
from syncsvc.engine.definitions.shard_setup import Sharding
from syncsvc.engine.principal_copy import PrincipalCopy
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.saved.created_collections import Found
from syncsvc.saved.fence import FENCES
from syncsvc.saved.lease import LEASES
from syncsvc.saved.run import UNBLOCK, RunRecord
from syncsvc.saved.run_documents import RUNS, saved_instances
from syncsvc.state import Phase
from verifier.cluster import failures
from verifier.cluster.inventory import list_raw
from verifier.cluster.reading import read
from verifier.cluster.specification import Kind
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import SLOW_POLL, StopToken, wait_until
from verifier.runtime.waits import waiting

_log = logging.getLogger(__name__)


def undo_commands(record: RunRecord, cluster: str) -> list[str]:
    """Return the mongosh commands that lift the sync's write block on a cluster and start its balancer again.

    The list is empty if the saved record contains neither a block that the sync set nor a balancer that it stopped.
    """
    return [
        *([UNBLOCK] if record.has_blocked(cluster) else []),
        *(["sh.startBalancer()"] if record.found_balancing.get(cluster) else []),
    ]


class Reset:
    """Runs the reset of one instance, after the instance has saved the state RESETTING and stopped all other work."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._client = context.destination_client
        self._writer = context.destination_writer
        self._stop = stop

    def run(self) -> None:
        """Run the whole reset; afterwards, this instance has no saved run record.

        In the coordinator, this also drops the run records of all other instances. Raises OperationError, the driver's
        errors, and `Cancelled` when stopped.
        """
        run = self._context.run
        # After this update, the fence refuses every earlier write of this instance. The coordinator waits for this
        # phase.
        run.update(phase=Phase.RESETTING)
        self._context.observe(Point.SYNC_STOPPED, "")
        if run.record.coordinates:
            self._clear()
        else:
            self._wait_for_coordinator()

    def _wait_for_coordinator(self) -> None:
        with waiting(
            "The reset of this instance waits for the coordinator",
            f"Check that the coordinator ({self._context.run.record.coordinator}) and all other instances run, and "
            "send POST /api/v1/reset to each of them.",
        ):
            wait_until(self._is_cleared, self._stop, SLOW_POLL)
        # If the coordinator was never started, nothing was created, and only the record of this instance is left.
        self._context.run.withdraw()

    def _is_cleared(self) -> bool:
        run = self._context.run.record
        saved = read(lambda: saved_instances(self._context.metadata), self._stop)
        return not {run.instance, run.coordinator} <= {*saved}

    def _clear(self) -> None:
        context = self._context
        _, destination_balancer = context.balancers
        # Release the source first, because applications may be waiting to write to it.
        self._release_source()
        context.observe(Point.SOURCE_RELEASED, "")
        context.instances.wait_for_started(lambda other: other.phase is Phase.RESETTING, self._stop)
        if context.run.record.options.blocks_destination:
            # A commit may have lifted the block. Users must not write to collections that are about to be dropped.
            context.destination_block.keep()
        self._drop_created()
        context.destination_block.put_back()
        destination_balancer.put_back()
        context.observe(Point.DESTINATION_RELEASED, "")
        self._drop_metadata()

    def _release_source(self) -> None:
        """Restore the write block and the balancer of the source; if it does not answer, log the commands that do this.

        Raises OperationError or the driver's errors if the source answers, but refuses a command. The reset can then be
        repeated.
        """
        context = self._context
        record = context.run.record
        commands = undo_commands(record, record.source)
        if not commands:
            return
        try:
            with impatient(context.tuning.source_patience):
                context.source_block.put_back()
                context.balancers[0].put_back()
        except PyMongoError as error:
            if failures.named_kind(error) is not failures.CLUSTER_UNREACHABLE:
                raise
            _log.warning(
                "The source does not answer, so the reset continues without it: user writes may stay blocked there, "
                "and the balancer stopped. When the source answers again, connect mongosh to it and run the commands "
                "in the field `undo`.",
                extra={
                    "cluster": record.source,
                    "undo": commands,
                    "error": failures.text_of(error),
                },
            )

    def _drop_created(self) -> None:
        context, views = self._context, self._context.views.load()
        # List the collections repeatedly, because users may rename a collection before it is dropped.
        while found := created(context, views, self._stop):
            # Drop the views first, because they read collections.
            for each in sorted(found, key=lambda each: each.kind is not Kind.VIEW):
                self._stop.check()
                self._drop(each)
                context.observe(Point.COLLECTION_DROPPED, str(each.namespace))
        if context.destination_facts.is_sharded:
            Sharding(context, self._stop).remove_zones()
        if context.run.record.options.users_and_roles is not None:
            PrincipalCopy(context, self._stop).remove()

    def _drop(self, found: Found) -> None:
        uuid = found.uuid if found.kind is Kind.COLLECTION else None
        if uuid is None:
            # Views have no UUID, and servers do not accept that of a time-series collection. If another process has
            # taken over the run, the name may already belong to a new collection or view: check first that this process
            # still owns the run.
            self._context.run.update()
        self._writer.drop(*found.namespace, None if uuid is None else Binary(uuid, 4))

    def _drop_metadata(self) -> None:
        database = self._context.metadata.name
        rows = read(lambda: list_raw(self._client, database), self._stop)
        uuids = {row["name"]: row["info"]["uuid"] for row in rows}
        # Keep the leases, which belong to the daemons, not to the sync. The drops of the other collections need the
        # fences, so drop these at the end. Only the run records are dropped later.
        for name in sorted(uuids.keys() - {RUNS, LEASES}, key=lambda name: (name == FENCES, name)):
            self._writer.drop(database, name, uuids[name])
            self._context.observe(Point.METADATA_DROPPED, name)
        self._context.run.drop_all(uuids[RUNS])
