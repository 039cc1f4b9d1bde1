"""Says why a commit is not possible, and what the operator should do next. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from syncsvc.ctl.client import Document
from syncsvc.ctl.text import count, duration, percent, share, size

# A commit is accepted only up to these lags (docs/reference/api.rst). The first limits the lag of the destination, and
# the lag with which the verification reads changes; the second, the lag with which it compares changed documents.
MAX_LAG_SECONDS = 30
MAX_RECHECK_LAG_SECONDS = 60
UNKNOWN_OBSTACLE = (
    "The daemon is still checking whether a commit is possible. If the check does not end, see the warnings "
    "(syncctl status) and, if several instances share the sync, the status of each of them."
)
APPLYING = "change event application"
COMPARED = "stream hashing"
# In this phase, the amount to copy is not known.
NOTHING_LISTED = "initializing collections and indexes"
_EARLIER_PHASES = {
    NOTHING_LISTED: "The copy has not begun.",
    "building indexes": "Indexes are being built.",
    "withdrawing the commit": "The sync is still undoing the steps of an earlier commit.",
}


def destination_name(progress: Document) -> str | None:
    """Return the name of the destination, such as `cluster1`; None if there is no sync."""
    mapping = progress.get("directionMapping") or {}
    return mapping["Destination"].partition(":")[0] if mapping else None


def other_coordinator(progress: Document) -> str | None:
    """Return the name of the instance that coordinates the sync; None if it is the called one, or is not known.

    Only the coordinator verifies, and only its progress shows the verification.
    """
    coordinator = progress.get("coordinatorID")
    return None if coordinator == progress.get("mongosyncID") else coordinator


def is_replaced(progress: Document) -> bool:
    """Return whether another process has just taken the sync over from this daemon, which runs with `--standby`.

    For a moment, this daemon shows a failed sync. Then the daemon becomes a standby, and shows the real state.
    """
    return "role" in progress and progress.get("error") == "Superseded"


def obstacles(progress: Document, max_lag: float | None = None) -> list[str]:
    """Return the reasons why a commit is not possible now; an empty list if it is possible.

    `max_lag` is the largest permitted lag in seconds (None: no limit). If the daemon would accept a commit, a larger or
    unknown lag is the only reason.
    """
    if not progress["canCommit"]:
        return [*_why_not(progress)] or [UNKNOWN_OBSTACLE]
    lag = progress.get("lagTimeSeconds")
    if max_lag is not None and (lag is None or lag > max_lag):
        return [
            f"The lag of the destination is {duration(lag)}; --max-lag allows at most {duration(max_lag)}."
        ]
    return []


def _why_not(progress: Document) -> Iterator[str]:
    state, info = progress["state"], progress.get("info")
    if state != "RUNNING":
        yield f"The sync is {state}; a commit needs a RUNNING sync."
    elif info == APPLYING:
        yield from _behind(progress)
    elif info == "collection copy":
        yield f"The copy is not complete. {_copied(copy_of(progress))}."
    else:
        yield _EARLIER_PHASES.get(str(info), f"The phase is {info}.")


def _behind(progress: Document) -> Iterator[str]:
    lag = progress.get("lagTimeSeconds")
    if (progress.get("repairs") or {}).get("inProgress"):
        yield "The differences between the clusters are being repaired."
    if progress.get("ceaStage") == "collection copy drain":
        known = "" if lag is None else f"; the lag is {duration(lag)}"
        yield f"Changes made during the copy are still being applied{known}."
    elif lag is None:
        yield "The lag is not known yet."
    elif lag > MAX_LAG_SECONDS:
        yield f"The destination is {duration(lag)} behind the source; a commit allows at most {MAX_LAG_SECONDS} s."
    if coordinator := other_coordinator(progress):
        yield f"The coordinator {coordinator} has not reported that a commit is possible."
    elif verification := progress.get("verification"):
        yield from _unverified(verification)


def _unverified(verification: Document) -> Iterator[str]:
    phases = {side["phase"] for side in verification.values()}
    if "not started" in phases:
        yield "Verification has not begun."
    elif phases != {COMPARED}:
        compared, total = compared_of(verification)
        yield (
            f"The first pass of the verification is not complete. Documents compared: {count(compared)}; "
            f"estimated total: {count(total)}."
        )
    for name, side in verification.items():
        behind = side["lagTimeSeconds"]
        if behind is not None and behind > MAX_LAG_SECONDS:
            yield f"Verification is {duration(behind)} behind the changes of the {name}."
        uncompared = side.get("recheckLagTimeSeconds", 0)  # earlier daemons do not have this field
        if uncompared is None and side["phase"] == COMPARED:
            yield f"Verification must still compare the documents of the {name} that changed during its first pass."
        elif uncompared is not None and uncompared > MAX_RECHECK_LAG_SECONDS:
            yield f"Verification is {duration(uncompared)} behind in comparing the changed documents of the {name}."


@dataclass(frozen=True)
class Copy:
    """The estimated bytes copied so far, and to copy in total (None if unknown; meaningless during `NOTHING_LISTED`).

    If `is_part`, `copied` counts only the bytes that one of several instances has copied; `total` counts all bytes.
    """

    copied: int
    total: int | None
    is_part: bool = False


def copy_of(progress: Document) -> Copy:
    copy = progress.get("collectionCopy") or {}
    own = copy.get("estimatedCopiedBytes") or 0
    in_all = copy.get("estimatedCopiedBytesInAll", own)
    return Copy(own if in_all is None else in_all, copy.get("estimatedTotalBytes"), in_all is None)


def _copied(copy: Copy) -> str:
    if copy.is_part:
        return f"Copied by this instance: {size(copy.copied)}; estimated total of all instances: {size(copy.total)}"
    return f"Copied: {percent(share(copy.copied, copy.total))}; estimated total: {size(copy.total)}"


def compared_of(verification: Document) -> tuple[int, int | None]:
    """Return the number of documents that the first pass has compared, and the estimated total (None if unknown)."""
    side = verification["destination"]
    return side["hashedDocumentCount"], side["estimatedDocumentCount"]


def next_step(progress: Document, syncctl: str, advice: Document | None = None) -> str:
    """Return the text after `Next: `, which tells the operator what to do next.

    `syncctl` is the program name with its connection options; the commands in the text begin with it. `advice` is
    the field `next` of `GET /api/v1/overview`, which is the next step that the daemon itself names. Pass None if
    `is_advised` returns False, or if there is no overview.
    """
    if progress.get("role") == "standby":
        return (
            "nothing on this daemon, because it is a standby. Send commands to the active daemon."
        )
    steps: dict[str, Any] = {
        "INITIALIZING": f"wait for the end of the initialization. If it does not end: {syncctl} doctor",
        "IDLE": f"examine both clusters: {syncctl} preflight; then start the sync: {syncctl} start",
        "RUNNING": _while_running(progress, syncctl),
        "PAUSED": f"keep the daemon running; to continue the sync: {syncctl} resume",
        "COMMITTING": _while_committing(progress, syncctl),
        "COMMITTED": _after_commit(syncctl, advice),
        "REVERSING": f"wait until a commit is possible: {syncctl} watch --until canCommit",
        "RESETTING": f"wait until the reset is complete: {syncctl} watch --until idle",
        "FAILED": _after_failure(progress, syncctl, advice),
    }
    if advice is not None and progress["state"] not in _ADVISED:
        return _advised(advice, syncctl)
    return str(steps.get(progress["state"], f"see {syncctl} status --json."))


def is_advised(progress: Document, overview: Document) -> bool:
    """Return whether the next step must be the one that the daemon names in its `overview`.

    Only the daemon knows whether a failed or committed sync can be continued or reversed, which cluster the
    applications must use, to which of several instances a command must still be sent, and which commands the declared
    state permits.
    """
    is_declared = progress.get("desiredState") is not None
    return progress["state"] in _ADVISED or is_declared or bool(overview.get("instances"))


# The states in which only the daemon knows the next step.
_ADVISED = ("FAILED", "COMMITTED")


def _while_running(progress: Document, syncctl: str) -> str:
    if progress["canCommit"]:
        return f"stop the applications that write to the source, then: {syncctl} commit --wait"
    return f"wait until a commit is possible: {syncctl} watch --until canCommit"


def _while_committing(progress: Document, syncctl: str) -> str:
    if progress["canWrite"]:
        return f"point the applications to the destination, then wait until the commit is complete: {syncctl} watch"
    return f"wait until applications may write: {syncctl} watch --until canWrite"


def _after_commit(syncctl: str, advice: Document | None) -> str:
    text = "Point the applications to the destination." if advice is None else advice["text"]
    return f"{text} To keep the report: {syncctl} report."


def _after_failure(progress: Document, syncctl: str, advice: Document | None) -> str:
    if is_replaced(progress):
        return "wait a moment: another daemon continues the sync, and this one becomes a standby."
    if progress.get("error") == "Superseded":
        return "stop this daemon: another process runs the sync now, or the saved sync was deleted."
    if advice is None:
        return "look up the error in docs/reference/errors."
    return _advised(advice, syncctl)


def _advised(advice: Document, syncctl: str) -> str:
    """Return the daemon's next step as a sentence, with the `syncctl` command to run, if any."""
    if advice["command"] is None:
        return str(advice["text"])
    return f"{advice['text'].removesuffix('.')}: {syncctl} {advice['command']}"
