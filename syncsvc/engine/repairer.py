"""Repairs the differences that the verification has found, in numbered rounds that the coordinator starts.

A round is saved in three steps: the list of its differences, its number in the run record, and its completion. In each
instance, the thread that passes change events to the lanes applies the round (`syncsvc.engine.events.repair_work`):
documents are read again through the lanes, so their writes stay in order with those of the events. After a kill, the
next process repeats the interrupted step. This is safe: a repair sets documents and views to their current state on the
source, and the definitions of collections to the saved ones; later events are applied after the repair.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.options import Repair
from syncsvc.rules.repairing import Action, action_of
from syncsvc.saved.created_collections import mismatch_names, replaced
from syncsvc.state import State
from verifier.cluster.reading import read
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.mismatch import StoredMismatch
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken, wait_until
from verifier.runtime.waits import waiting

_log = logging.getLogger(__name__)

# How many rounds one commit may run: the first one creates missing collections, whose documents the second one writes.
_MOST_IN_COMMIT = 2
_APPLYING = (
    "A repair takes longer if many documents differ or the lag is high. If the repair does not end, see the other "
    "warnings."
)


class Repairer:
    """Runs rounds of repairs. Only one thread at a time may call its methods."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop
        # The generation (pass) of the check in which a requested repair created a collection, while that request is
        # open; otherwise None.
        self._created_in: int | None = None

    def repair_in_commit(self) -> bool:
        """Repair the differences that are left after all changes are applied; return whether a repair was run.

        Return False if the start options forbid repairs, the commit has already repaired twice, or no difference can be
        repaired. A repair removes the saved commit time, because a document that is read again may hold later writes.
        """
        record = self._context.run.record
        if record.options.repair is Repair.NEVER or record.commit_repairs >= _MOST_IN_COMMIT:
            return False
        number, actions = self._list()
        if not actions:
            return False
        self._run_round(number, commit_time=None, commit_repairs=record.commit_repairs + 1)
        return True

    def finish_round(self) -> None:
        """Wait until all instances have applied the newest round of repairs, and save that the round is complete.

        A no-op if that is already saved.
        """
        run = self._context.run
        number = run.record.repair
        if run.record.repair_done >= number:
            return
        with waiting("Differences are being repaired", _APPLYING):
            wait_until(lambda: run.record.repaired >= number, self._stop)
        self._context.instances.wait_for_all(lambda other: other.repaired >= number, self._stop)
        counts = self._context.repairs.counts()
        run.update(
            repair_done=number,
            repaired_documents=counts.documents,
            repaired_definitions=counts.definitions,
        )
        _log.info("A round of repairs is complete.", extra={"round": number})

    def repair_on_demand(self) -> None:
        """Repair the differences that the verification has found so far, if a user has requested a repair.

        If the repair creates a missing collection while the sync is RUNNING, the request stays open: a later call
        repairs the documents of that collection, once the check has compared them.
        """
        self.finish_round()
        run, check = self._context.run, self._context.checks.record
        # Count the requests before listing the differences: a later request may be about differences that the list
        # lacks.
        requests = run.record.repair_requests
        if not run.record.repair_requested:
            return
        # A commit must not wait here until the check has compared a created collection: before the commit ends, the
        # check compares everything that differs anyway.
        may_wait = run.record.state is State.RUNNING
        compared = check.generation if check.done else check.generation - 1
        if may_wait and self._created_in is not None and compared <= self._created_in:
            return
        # A commit would wait for the repair, so canCommit must be false until the coordinator has checked again that
        # all instances have caught up.
        self._context.progress.set(caught_up=False)
        run.update(caught_up=False)
        number, actions = self._list()
        again = self._created_in is None and may_wait and Action.CREATE in actions
        met: dict[str, Any] = {} if again else {"repair_requests_met": requests}
        if actions:
            self._run_round(number, **met)
        else:
            run.update(**met)
        self._created_in = self._context.checks.record.generation if again else None

    def _run_round(self, number: int, **begun: Any) -> None:
        """Run the round of repairs `number`, whose list of differences is already saved.

        `begun` holds other fields of the run record, which are saved together with the number of the round.
        """
        context = self._context
        context.observe(Point.REPAIR_LISTED, str(number))
        context.run.update(repair=number, **begun)
        context.observe(Point.REPAIR_BEGUN, str(number))
        self.finish_round()
        context.observe(Point.REPAIR_DONE, str(number))

    def _list(self) -> tuple[int, set[Action]]:
        """Save the differences that can be repaired as the list of the next round; return its number and its actions.

        Start over if the check replaces its saved differences while they are read.
        """
        self.finish_round()
        repairs = self._context.repairs
        number = self._context.run.record.repair + 1
        while True:
            actions: set[Action] = set()
            # An earlier attempt, or a killed process, may have saved differences that no longer exist.
            repairs.remove_all(number)
            try:
                repairs.add(number, self._known(actions))
                return number, actions
            except OperationError as error:
                if error.kind is not MISMATCHES_REPLACED:
                    raise
            self._stop.check()

    def _known(self, actions: set[Action]) -> Iterator[StoredMismatch]:
        """Yield the saved differences that can be repaired, and add the action for each of them to `actions`."""
        context, checks = self._context, self._context.checks
        recreated = read(lambda: replaced(context.destination_client, context.registry), self._stop)
        foreign = mismatch_names(recreated, context.names)
        if foreign:
            _log.warning(
                "Collections are not repaired, because users replaced them on the destination with others of the same "
                "name. While they differ from the source, no verification succeeds: save their data if needed, drop "
                "them on the destination, and send POST /api/v1/repair (during a commit, only after the commit "
                "has failed).",
                extra={"namespaces": sorted(map(str, foreign))},
            )
        for found in (
            checks.definition_mismatches(None, None),
            checks.document_mismatches(None, None, 0),
        ):
            for each in found:
                action = action_of(each.mismatch, foreign)
                if action.repairs:
                    actions.add(action)
                    yield each
