"""What a resume does after a failure: a decision for every kind of error, and the record with which the sync continues.

Pure. A sync that is resumed after a saved failure continues through the same code as after a restart: this module only
says from which record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from syncsvc import errors
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from verifier.cluster import cluster, connect
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.runtime import commands, httpd, schemas, sites
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError


class Resumption(Enum):
    """What a resume does after a failure with an error of some kind. The values are texts for the documentation.

    CONTINUED: the failure is shown, but not saved, and changes no write block. Therefore a restart continues the sync,
    too.
    RETRIED: the failure is saved, and production continues on the source. A resume retries from the saved position.
    RETRIED_UNLESS_LOST: like RETRIED, but a resume is refused if the source no longer has the changes since that
    position.
    FINAL: a resume is refused, because the sync would fail at the same change event again.
    NEVER_FAILS: an error of this kind refuses a request or ends the process. No sync fails with it.
    """

    CONTINUED = "Remove the cause; then ``/resume`` or a restart continues the sync in the state in which it failed."
    RETRIED = "Remove the cause; then ``/resume`` continues from the saved position."
    RETRIED_UNLESS_LOST = (
        "``/resume`` is refused, unless the source still has the changes that the sync needs."
    )
    FINAL = "``/resume`` is refused: the sync would fail at the same change event again."
    NEVER_FAILS = "A request or a start of the process is refused; a sync never fails with these."


_KINDS: Mapping[Resumption, tuple[ErrorKind, ...]] = {
    # A superseded process must not save anything, nor must a process of another version than the one that saved the
    # metadata.
    Resumption.CONTINUED: (
        errors.CLUSTER_UNREACHABLE,
        errors.NOT_AUTHORIZED,
        errors.UNEXPECTED_SERVER_ERROR,
        errors.SUPERSEDED,
        errors.INCOMPATIBLE_METADATA,
        INTERNAL_ERROR,
    ),
    Resumption.RETRIED: (
        errors.DESTINATION_NOT_EMPTY,
        errors.UNSUPPORTED_COLLECTION,
        errors.COLLECTION_NOT_SHARDABLE,
        errors.SHARD_KEY_INDEX_MISSING,
        errors.UNIQUE_INDEX_INCOMPATIBLE,
        errors.TTL_NOT_VERIFIABLE,
        errors.UNSUPPORTED_CHANGE,
        errors.RENAMED_OUT_OF_FILTER,
        errors.DEFINITION_NOT_APPLICABLE,
        errors.DOCUMENT_NOT_COPIED,
        errors.DUPLICATE_IDS,
        errors.EVENT_NOT_APPLICABLE,
        errors.VERIFICATION_FAILED,
        errors.VERIFICATION_INCOMPLETE,
    ),
    Resumption.RETRIED_UNLESS_LOST: (errors.OPLOG_WINDOW_EXCEEDED,),
    Resumption.FINAL: (
        errors.SHARD_KEY_CHANGED,
        errors.RENAMED_ACROSS_DATABASES,
        errors.EVENT_TOO_LARGE,
    ),
    Resumption.NEVER_FAILS: (
        httpd.NOT_FOUND,
        httpd.METHOD_NOT_ALLOWED,
        httpd.MALFORMED_BODY,
        httpd.BODY_TOO_LARGE,
        httpd.TOO_MANY_READERS,
        httpd.ADDRESS_NOT_AVAILABLE,
        schemas.INVALID_REQUEST,
        sites.HOST_NOT_ALLOWED,
        sites.ORIGIN_NOT_ALLOWED,
        commands.COMMAND_IN_PROGRESS,
        connect.INVALID_URI,
        cluster.SAME_CLUSTER,
        MISMATCHES_REPLACED,
        errors.UNKNOWN_CLUSTER,
        errors.NOT_SUPPORTED_YET,
        errors.INVALID_STATE,
        errors.NOT_ACTIVE,
        errors.NOT_READY,
        errors.FAILURE_IS_FINAL,
        errors.CANNOT_COMMIT,
        errors.METADATA_LEFT_OVER,
        errors.SHARDING_REQUIRED,
        errors.SHARDING_NOT_APPLICABLE,
        errors.INVALID_SHARDING_ENTRY,
        errors.UNKNOWN_INSTANCE,
        errors.INSTANCES_NOT_APPLICABLE,
        errors.DIFFERENT_START,
        errors.WRITE_BLOCKING_WITH_FILTER,
        errors.WRITE_BLOCKING_NEEDS_NEWER_SOURCE,
        errors.REVERSIBLE_NEEDS_WRITE_BLOCKING,
        errors.REVERSIBLE_WITH_FILTER,
        errors.REVERSIBLE_WITHOUT_INDEXES,
        errors.REVERSIBLE_NEEDS_NEWER_SOURCE,
        errors.REVERSIBLE_NEEDS_EQUAL_VERSIONS,
        errors.REVERSIBLE_NEEDS_EQUAL_SHARDS,
        errors.INSUFFICIENT_MEMORY,
        errors.INSUFFICIENT_DISK_SPACE,
        errors.UNSUPPORTED_TOPOLOGY,
        errors.UNSUPPORTED_VERSION,
        errors.NOT_REVERSIBLE,
        errors.OLD_SOURCE_WRITTEN,
        errors.DESTINATION_IN_USE,
        errors.WRONG_CLUSTERS,
    ),
}
RESUMPTIONS = {kind: each for each, kinds in _KINDS.items() for kind in kinds}
# The step of the cut-over before the destination is unblocked. It is saved, so it must never change.
PREPARED = "definitions prepared"
_BY_NAME = {kind.name: kind for kind in RESUMPTIONS}


def is_saved(kind: ErrorKind) -> bool:
    """Return whether the failure of a sync with this kind of error is saved, so that a restart does not continue it."""
    return RESUMPTIONS.get(kind) is not Resumption.CONTINUED


def refuse_final(record: RunRecord, others: Collection[RunRecord]) -> None:
    """Raise OperationError FailureIsFinal if the sync would fail in the same way again, or the copy may be damaged."""
    failure = record.failure
    assert failure is not None
    if any(map(_was_open, (record, *others))) and not _is_cut_over(record, others):
        raise OperationError(
            errors.FAILURE_IS_FINAL,
            f"The sync failed with {failure.name} in the last steps of the commit. Users could already write to the "
            "destination, and its TTL indexes deleted documents, so it may differ from the source.",
        )
    kind = _BY_NAME.get(failure.name)
    if kind is not None and RESUMPTIONS[kind] is Resumption.FINAL:
        raise OperationError(
            errors.FAILURE_IS_FINAL,
            f"The sync failed with {kind.name}. {kind.meaning} The source's oplog contains this change, so a resumed "
            "sync would fail at it again.",
        )


def may_be_lost(failure: Failure) -> bool:
    """Return whether the failure says that the source no longer has the changes since the saved position."""
    kind = _BY_NAME.get(failure.name)
    return kind is not None and RESUMPTIONS[kind] is Resumption.RETRIED_UNLESS_LOST


def resumed(record: RunRecord, others: Collection[RunRecord]) -> dict[str, Any]:
    """Return the fields that change in an instance's record when it is resumed after a saved failure.

    `others` are the records of the other instances. If users may already write to the destination, the cut-over
    continues. Otherwise a commit must be requested again, because users have returned to the source.

    Raises OperationError InvalidState if another instance has not stopped yet.
    """
    common = {"failure": None, "attempt": _next_attempt(record, others), "caught_up": False}
    if record.phase is Phase.REVERSING:
        return {**common, "state": State.REVERSING}
    if _is_cut_over(record, others):
        return {**common, "state": State.COMMITTING}
    cutting_over = record.phase is Phase.CUTTING_OVER
    return {
        **common,
        "state": State.RUNNING,
        "phase": Phase.WITHDRAWING if cutting_over else record.phase,
        "commit_time": None,
        "steps": (),
    }


def needs_new_check(record: RunRecord) -> bool:
    """Return whether a resumed sync must verify everything again. `record` was saved with the failure.

    The sync must do so if the saved check could not be completed, or if a commit was requested: the check may then
    assume that users no longer write to the source.
    """
    assert record.failure is not None
    incomplete = record.failure.name == errors.VERIFICATION_INCOMPLETE.name
    return incomplete or record.commit_time is not None


def _was_open(record: RunRecord) -> bool:
    """Return whether the destination may have been unblocked when the cut-over failed."""
    blocked = record.options.blocks_destination and PREPARED not in record.steps
    return record.phase is Phase.CUTTING_OVER and not blocked


def _is_cut_over(record: RunRecord, others: Collection[RunRecord]) -> bool:
    """Return whether users may write to the destination. The record of a follower may not show that yet."""
    return record.can_write or any(
        other.reversals > record.reversals
        or (other.reversals == record.reversals and other.can_write)
        for other in others
    )


def _next_attempt(record: RunRecord, others: Collection[RunRecord]) -> int:
    """Return the number of the attempt that the resumed instance joins, or begins if it is the first to be resumed.

    All instances must have failed before the first one is resumed. Otherwise, one of them could continue a commit that
    the others have withdrawn.
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
