"""Says why a commit is not possible, and what an operator does next. Pure functions of the progress of a sync."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syncsvc.ctl.client import Document
from syncsvc.ctl.text import count, duration, percent, share, size

# A commit is accepted up to this lag, of the destination and of the verification (docs/reference/api.rst).
MAX_LAG_SECONDS = 30
APPLYING = "change event application"
COMPARED = "stream hashing"
_EARLIER_PHASES = {
    "initializing collections and indexes": "The copy has not begun.",
    "building indexes": "Indexes are being built.",
    "withdrawing the commit": "An earlier commit is being withdrawn.",
}


def destination_name(progress: Document) -> str | None:
    """Return the name of the destination, such as `cluster1`; None before the first start."""
    mapping = progress.get("directionMapping") or {}
    return mapping["Destination"].partition(":")[0] if mapping else None


def obstacles(progress: Document, max_lag: float | None = None) -> list[str]:
    """Return why a commit is not possible now, or not with at most `max_lag` seconds of lag; empty if it is."""
    if not progress["canCommit"]:
        return [*_why_not(progress)] or [
            "The daemon is still checking whether both clusters are close enough. If this lasts, a warning in the "
            "status, or another instance of the sync, shows why a commit is not possible."
        ]
    lag = progress.get("lagTimeSeconds")
    if max_lag is not None and (lag is None or lag > max_lag):
        return [f"The destination is {duration(lag)} behind; --max-lag allows {duration(max_lag)}."]
    return []


def _why_not(progress: Document) -> Iterator[str]:
    state, info = progress["state"], progress.get("info")
    if state != "RUNNING":
        yield f"The sync is {state}; a commit needs a RUNNING sync."
    elif info == APPLYING:
        yield from _behind(progress)
    elif info == "collection copy":
        copied, total = copy_of(progress)
        yield f"The copy is not complete: {percent(share(copied, total))} of {size(total)}."
    else:
        yield _EARLIER_PHASES.get(str(info), f"The phase is {info}.")


def _behind(progress: Document) -> Iterator[str]:
    lag = progress.get("lagTimeSeconds")
    if progress.get("ceaStage") == "collection copy drain":
        known = "" if lag is None else f"; the lag is {duration(lag)}"
        yield f"Changes made during the copy are still being applied{known}."
    elif lag is None:
        yield "The lag is not known yet."
    elif lag > MAX_LAG_SECONDS:
        yield f"The destination is {duration(lag)} behind; at most {MAX_LAG_SECONDS} s are allowed."
    verification = progress.get("verification")
    if verification is None:
        return
    phases = {side["phase"] for side in verification.values()}
    if "not started" in phases:
        yield "Verification has not begun."
    elif phases != {COMPARED}:
        compared, total = compared_of(verification)
        yield f"Verification is not complete: {count(compared)} of {count(total)} documents."
    for name, side in verification.items():
        behind = side["lagTimeSeconds"]
        if behind is not None and behind > MAX_LAG_SECONDS:
            yield f"Verification is {duration(behind)} behind the changes of the {name}."


def copy_of(progress: Document) -> tuple[int, int | None]:
    """Return the copied bytes and the bytes to copy."""
    copy = progress.get("collectionCopy") or {}
    return copy.get("estimatedCopiedBytes") or 0, copy.get("estimatedTotalBytes")


def compared_of(verification: Document) -> tuple[int, int | None]:
    """Return the compared documents and the documents to compare."""
    side = verification["destination"]
    return side["hashedDocumentCount"], side["estimatedDocumentCount"]


def next_step(progress: Document, syncctl: str) -> str:
    """Return what the operator should do next. `syncctl` is the beginning of the commands in it, see `Tool.name`."""
    if progress.get("role") == "standby":
        return "nothing here: this daemon is a standby. Send commands to the active daemon."
    steps: dict[str, Any] = {
        "INITIALIZING": f"wait. If this lasts, look for the cause: {syncctl} doctor",
        "IDLE": f"examine both clusters: {syncctl} preflight; then start the sync: {syncctl} start",
        "RUNNING": _while_running(progress, syncctl),
        "PAUSED": f"continue the sync: {syncctl} resume. Keep the daemon running until then.",
        "COMMITTING": _while_committing(progress, syncctl),
        "COMMITTED": f"point the applications to the destination, and keep the report: {syncctl} report. Then "
        "clean up (docs/howto/clean-up).",
        "REVERSING": f"wait until a commit is possible: {syncctl} watch --until canCommit",
        "RESETTING": f"wait until everything is dropped: {syncctl} watch --until idle",
        "FAILED": _after_failure(progress, syncctl),
    }
    return str(steps.get(progress["state"], f"see {syncctl} status --json."))


def _while_running(progress: Document, syncctl: str) -> str:
    if progress["canCommit"]:
        return f"stop the applications that write to the source, then: {syncctl} commit --wait"
    return f"wait until a commit is possible: {syncctl} watch --until canCommit"


def _while_committing(progress: Document, syncctl: str) -> str:
    if progress["canWrite"]:
        return f"point the applications to the destination, then wait for the end: {syncctl} watch"
    return f"wait until applications may write: {syncctl} watch --until canWrite"


def _after_failure(progress: Document, syncctl: str) -> str:
    if progress.get("error") == "Superseded":
        return "stop this process: the sync continues in another one."
    if progress["canWrite"]:
        where = "leave the applications on the destination; the source lacks their writes."
    else:
        where = "let the applications return to the source."
    if progress.get("error") == "VerificationFailed":
        return f"{where} Then look at the differences: {syncctl} mismatches; {syncctl} repair --dry-run"
    return f"{where} Remove the cause, then: {syncctl} resume"
