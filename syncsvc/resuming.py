"""Decides for each kind of error whether a failed sync can be resumed or repaired, and how its run record changes then.

After a resume, the sync continues from the changed record through the same code as after a restart. The functions here
have no side effects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from syncsvc import errors
from syncsvc.saved.peers import is_cut_over
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError


class Resumption(Enum):
    """The ways in which a failed sync can be resumed, by kind of error. The values are texts for the documentation.

    CONTINUED: the failure is shown but not saved, and changes no write block. A resume or a restart continues the sync.

    RETRIED: the failure is saved. The sync lifts its write block on the source, unless users may already write to the
    destination. A resume retries from the saved position.

    RETRIED_UNLESS_LOST: like RETRIED, but a resume is refused if neither the event spool nor the source has the changes
    since the saved position any more.

    FINAL: a resume is refused, because the sync would fail at the same change event again.
    """

    CONTINUED = (
        "Remove the cause of the failure; then ``/resume`` or a restart continues the sync in the state in which the "
        "sync failed. If it failed during a commit, the commit stays requested: keep the applications stopped until "
        "``canWrite`` is true."
    )
    RETRIED = "Remove the cause of the failure; then ``/resume`` continues from the saved position."
    RETRIED_UNLESS_LOST = (
        "``/resume`` continues from the saved position, but is refused if neither the event spool nor the source still "
        "has the change events after this position."
    )
    FINAL = "``/resume`` is refused: the sync would fail at the same change event again."


_KINDS: Mapping[Resumption, tuple[ErrorKind, ...]] = {
    # A superseded process must not save anything, nor must a process that cannot read the metadata because another
    # version saved them.
    # If the cut-over could not lift a block that someone else has set, it must continue once the block is lifted.
    Resumption.CONTINUED: (
        errors.CLUSTER_UNREACHABLE,
        errors.NOT_AUTHORIZED,
        errors.UNEXPECTED_SERVER_ERROR,
        errors.SUPERSEDED,
        errors.INCOMPATIBLE_METADATA,
        errors.FOREIGN_WRITE_BLOCK,
        INTERNAL_ERROR,
    ),
    Resumption.RETRIED: (
        errors.DESTINATION_NOT_EMPTY,
        errors.DESTINATION_NAMESPACE_EXISTS,
        errors.UNSUPPORTED_COLLECTION,
        errors.DOCUMENT_FILTER_NOT_APPLICABLE,
        errors.DOCUMENT_FILTER_FAILED,
        errors.COLLECTION_NOT_SHARDABLE,
        errors.SHARD_KEY_INDEX_MISSING,
        errors.UNIQUE_INDEX_INCOMPATIBLE,
        errors.TTL_NOT_VERIFIABLE,
        errors.UNSUPPORTED_CHANGE,
        errors.RENAMED_OUT_OF_FILTER,
        errors.NAMESPACE_COLLISION,
        errors.NOT_RENAMABLE,
        errors.SHARD_KEY_CHANGED,
        errors.DEFINITION_NOT_APPLICABLE,
        errors.DOCUMENT_NOT_COPIED,
        errors.DUPLICATE_IDS,
        errors.EVENT_NOT_APPLICABLE,
        errors.VERIFICATION_FAILED,
        errors.VERIFICATION_INCOMPLETE,
        errors.USER_OR_ROLE_EXISTS,
        errors.ROLE_MISSING,
        errors.AUTH_SCHEMA_UNSUPPORTED,
        errors.USER_OR_ROLE_NOT_COPIED,
    ),
    Resumption.RETRIED_UNLESS_LOST: (
        errors.OPLOG_WINDOW_EXCEEDED,
        errors.EVENT_SPOOL_FULL,
        errors.EVENT_SPOOL_DAMAGED,
    ),
    Resumption.FINAL: (
        errors.RENAMED_ACROSS_DATABASES,
        errors.EVENT_TOO_LARGE,
    ),
}
RESUMPTIONS = {kind: each for each, kinds in _KINDS.items() for kind in kinds}
# The step of the cut-over before the destination is unblocked, and the step that unblocks the destination. The names of
# the steps are saved, so they must never change.
CHECKED, UNBLOCKED = "source checked", "destination unblocked"
_BY_NAME = {kind.name: kind for kind in RESUMPTIONS}


def is_saved(kind: ErrorKind) -> bool:
    """Return whether a failure of the sync with this kind of error is saved in the run record.

    After a saved failure, a restart of the process does not continue the sync. A failed reset is never saved, whatever
    the error is.
    """
    return RESUMPTIONS.get(kind) is not Resumption.CONTINUED


def continued(failure: Failure) -> State | None:
    """Return the state in which a resume continues the sync; None if the failure is saved, or is being saved.

    A restart of the process continues the sync in the same state. A failed reset can only be continued, whatever the
    error is, because it may have dropped data already.
    """
    kind = _BY_NAME.get(failure.name)
    is_temporary = kind is not None and not is_saved(kind)
    return failure.saved_state if is_temporary or failure.saved_state is State.RESETTING else None


def refuse_final(record: RunRecord, others: Collection[RunRecord]) -> None:
    """Raise OperationError FailureIsFinal if the failed sync of `record` cannot be resumed; see `why_final`."""
    reason = why_final(record, others)
    if reason is not None:
        raise final(record, reason)


def final(record: RunRecord, reason: str) -> OperationError:
    """Return the error FailureIsFinal for the failed sync of `record`.

    `reason` says in sentences why the sync cannot be resumed. For a reversed sync, the error also says which cluster
    has the newest data.
    """
    if record.reversals:
        reason = (
            f"{reason} The sync was reversed, so users have written to both clusters. {record.source} has the newest "
            f"data; {record.destination} may lack some of it."
        )
    return OperationError(errors.FAILURE_IS_FINAL, reason)


def why_final(record: RunRecord, others: Collection[RunRecord]) -> str | None:
    """Return sentences that say why the sync of `record` cannot be resumed; None if it can be, or has not failed.

    A failure is not final if a resume continues the interrupted work, as a restart does: see `continued`.

    The sync cannot be resumed if it would fail at the same change event again, or if users may have written to the
    destination before `canWrite` was true. `others` are the records of the other instances. Lost change events are not
    checked here; see `may_be_lost`.
    """
    failure = record.failure
    if failure is None or continued(failure) is not None:
        return None
    if any(map(_was_open, (record, *others))) and not is_cut_over(record, others):
        return (
            f"The sync failed with {failure.name} in the last steps of the commit. Users may already have written to "
            "the destination, so it may differ from the source."
        )
    kind = _BY_NAME.get(failure.name)
    if kind is None or RESUMPTIONS[kind] is not Resumption.FINAL:
        return None
    return (
        f"The sync failed with {kind.name}. {kind.meaning} The source's oplog contains this change, so a resumed "
        "sync would fail at it again."
    )


def refuse_repair(record: RunRecord) -> None:
    """Raise OperationError CannotRepair if the sync cannot be repaired now; see `why_not_repairable`."""
    reason = why_not_repairable(record)
    if reason is not None:
        raise OperationError(errors.CANNOT_REPAIR, reason)


def why_not_repairable(record: RunRecord) -> str | None:
    """Return a sentence that says why the sync cannot be repaired now; None if its record allows a repair.

    A repair needs the start option `verification`, and the phase APPLYING, in which the verification runs. After a
    failure, the error must be VerificationFailed; each instance then accepts the command, which also resumes the
    instance. While the sync runs, only the coordinator accepts the command. The caller must check that the state allows
    a repair.
    """
    failed = record.state is State.FAILED
    name = "an unknown error" if record.failure is None else record.failure.name
    if failed and name != errors.VERIFICATION_FAILED.name:
        return (
            f"The sync failed with {name}; only a failure with VerificationFailed can be repaired."
        )
    if not record.options.verification:
        return "This sync was started without verification, so no differences are known."
    if record.phase is not Phase.APPLYING:
        return "The verification does not run in the current phase, so no differences are known."
    if not failed and not record.coordinates:
        return f"A repair must be sent to the coordinator {record.coordinator}."
    return None


def may_be_lost(failure: Failure) -> bool:
    """Return whether the kind of the failure means that change events after the saved position may be lost.

    If True, the caller must check that the event spool or the oplog still has these events before it resumes the sync.
    """
    kind = _BY_NAME.get(failure.name)
    return kind is not None and RESUMPTIONS[kind] is Resumption.RETRIED_UNLESS_LOST


def is_damaged(record: RunRecord) -> bool:
    """Return whether the sync failed because the event spool of the instance with this record is damaged."""
    failure = record.failure
    return (
        failure is not None
        and failure.name == errors.EVENT_SPOOL_DAMAGED.name
        and not failure.elsewhere
    )


def state_after_resume(record: RunRecord) -> State:
    """Return the state of the sync after a resume, judged by the record of this instance alone."""
    state = None if record.failure is None else continued(record.failure)
    return state or State(resumed(record, ())["state"])


def resumed(record: RunRecord, others: Collection[RunRecord]) -> dict[str, Any]:
    """Return the fields that change in an instance's record when the instance is resumed after a saved failure.

    `others` are the records of the other instances. A reversal that had begun continues. If users may already write to
    the destination, the cut-over continues. Otherwise, an earlier commit is withdrawn and must be requested again,
    because users may have returned to the source.

    Raises OperationError InvalidState if another instance has not stopped yet.
    """
    common = {"failure": None, "attempt": _next_attempt(record, others)}
    if record.phase is Phase.REVERSING:
        return {**common, "state": State.REVERSING}
    if is_cut_over(record, others):
        return {**common, "state": State.COMMITTING}
    return {**common, "state": State.RUNNING, **withdrawn(record.phase)}


def withdrawn(phase: Phase) -> dict[str, Any]:
    """Return the fields that change in the record of an instance in `phase` when its commit is withdrawn.

    A commit is withdrawn if it failed, or if users wrote or may have written to the source during the cut-over. If the
    cut-over had begun, the new phase WITHDRAWING replaces the restored definitions by stand-in definitions again.
    Because the commit time is removed, the verification discards its verdict.
    """
    return {
        "phase": Phase.WITHDRAWING if phase is Phase.CUTTING_OVER else phase,
        "commit_time": None,
        "steps": (),
        "principals": None,
        "commit_repairs": 0,
    }


def needs_new_check(failure: Failure) -> bool:
    """Return whether a resume after this failure begins a new check; otherwise, it continues the earlier check."""
    return failure.name == errors.VERIFICATION_INCOMPLETE.name


def _was_open(record: RunRecord) -> bool:
    """Return whether a failed cut-over may have unblocked user writes to the destination before it failed.

    Return False if the sync does not block the destination: users then begin to write there only once `can_write` is
    true.
    """
    # Earlier versions did not save the step CHECKED.
    is_open = CHECKED in record.steps or UNBLOCKED in record.steps
    return record.phase is Phase.CUTTING_OVER and record.options.blocks_destination and is_open


def _next_attempt(record: RunRecord, others: Collection[RunRecord]) -> int:
    """Return the number of the next attempt to run the failed sync.

    The first instance that is resumed begins a new attempt, and the others join it. Raises OperationError InvalidState
    if another instance has neither failed, nor been resumed, nor committed: it could continue a commit that the others
    have withdrawn.
    """
    ahead = [
        each for each in others if each.attempt > record.attempt and each.state is not State.FAILED
    ]
    stopped = (State.FAILED, State.COMMITTED)
    behind = sorted(
        each.instance
        for each in others
        if each.attempt <= record.attempt and each.state not in stopped
    )
    if behind:
        raise OperationError(
            errors.INVALID_STATE,
            "A failed sync can be resumed only when all of its instances have failed with the same error. These have "
            f"not: {', '.join(behind)}. Check that their processes run, and send POST /api/v1/resume to those that are "
            "PAUSED or have failed with another error, so that they fail, too. Then send this command again.",
        )
    newest = max(each.attempt for each in (record, *others))
    return newest if ahead else newest + 1
