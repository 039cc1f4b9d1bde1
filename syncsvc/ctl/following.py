"""Follows a sync, for `syncctl watch` and `syncctl commit --wait`, and names the operator's next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncsvc.ctl.advice import (
    UNKNOWN_OBSTACLE,
    compared_of,
    copy_of,
    is_advised,
    next_step,
    obstacles,
)
from syncsvc.ctl.client import Answer, ClientError, Document, progress_of
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.facts import sync_facts
from syncsvc.ctl.tool import Tool
from syncsvc.ctl.watching import Subject, Watch


def watch_sync(tool: Tool, timeout: float | None, answered: bool = False) -> Watch:
    subject = Subject(
        tool.api, lambda answer: read_progress(tool, answer), sync_facts, _step, _counters
    )
    return Watch(tool, subject, timeout, answered)


def read_progress(tool: Tool, answer: Answer) -> Document:
    return progress_of(answer, "state", f"{tool.api.url} is not a sync service")


def next_sentence(tool: Tool, progress: Document) -> str:
    """Return the operator's next step as a sentence.

    If only the daemon knows the step, ask the daemon. If it does not answer, and with --json, return a general step.
    """
    return _sentence(tool, progress, _overview(tool))


def _sentence(tool: Tool, progress: Document, overview: Document | None) -> str:
    known = overview is not None and is_advised(progress, overview)
    return next_step(progress, tool.name, overview["next"] if overview and known else None)


def sentence_after_command(tool: Tool) -> str:
    """Request the progress after a command has succeeded, and return the operator's next step.

    If the daemon does not return its progress, the next step is to ask for the progress again.
    """
    try:
        return next_sentence(tool, tool.api.progress())
    except ClientError:
        return f"{tool.name} status"


def sentence_after_differences(tool: Tool, repair: str) -> str:
    """Return the next step after a list of differences: `repair` if the sync has not failed and accepts a repair.

    `repair` is a `syncctl` command. Otherwise, return the general next step, as `next_sentence` does: after a failure,
    only the daemon knows whether a repair is possible, and whether desiredState must be changed before it. If the
    daemon does not answer, and with --json, return `syncctl status`.
    """
    overview = _overview(tool)
    if overview is None:
        return f"{tool.name} status"
    progress = overview["progress"]
    if progress["state"] == "FAILED" or "repair" not in overview["commands"]:
        return _sentence(tool, progress, overview)
    return repair


def sentence_after_plan(tool: Tool, repairs: Sequence[Document]) -> str:
    """Return the next step after a repair was planned. `repairs` are the planned actions, as the API returns them.

    If a repair would change none of the differences, the text begins with a sentence that says so.
    """
    if repairs and all(each["action"].startswith("none") for each in repairs):
        return (
            "a repair changes none of these differences: see the list. Then: "
            f"{sentence_after_command(tool)}"
        )
    return sentence_after_differences(tool, f"{tool.name} {'repair' if repairs else 'status'}")


def sentence_after_preflight(tool: Tool, start: str) -> str:
    """Return the next step after a preflight without violations: the command `start`.

    If the configuration of the daemon declares a state, return the next step that the daemon names, because the daemon
    may refuse a start.
    """
    try:
        progress = {} if tool.json else tool.api.progress()
    except ClientError:
        progress = {}
    if progress.get("desiredState") is None:
        return f"start the sync: {start}"
    return next_sentence(tool, progress)


def to_others(tool: Tool, which: str = "every other instance, too") -> str:
    """Return the beginning of a next step, which asks the operator to send the last command to other instances as well.

    The text ends with "; then ", and the caller appends the rest of the step. `which` names these instances, for
    example "every other instance that is FAILED". Return "" if the sync has only one instance, if the daemon does not
    answer, and with --json.
    """
    overview = _overview(tool)
    if overview is None or not overview.get("instances"):
        return ""
    return f"send the same command to {which}; then "


def why_not_committed(tool: Tool, progress: Document, max_lag: float | None) -> list[str]:
    """Return the reasons why a commit is not possible now (see `obstacles`); an empty list if it is possible.

    If the progress does not show a reason, return those that the daemon names in its overview, if there are any.
    """
    found = obstacles(progress, max_lag)
    if found != [UNKNOWN_OBSTACLE]:
        return found
    overview = _requested_overview(tool) or {}
    return overview.get("commit", {}).get("reasons") or found


def collection_count(tool: Tool) -> int | None:
    """Return the number of collections that the sync contains; None if the daemon does not say."""
    overview = _requested_overview(tool)
    counts: Document = {} if overview is None else overview.get("namespaces", {})
    return counts.get("total")


def _overview(tool: Tool) -> Document | None:
    """Return the overview of the daemon, which names the next step.

    Return None if the request fails, and with --json, because no next step is printed then.
    """
    return None if tool.json else _requested_overview(tool)


def _requested_overview(tool: Tool) -> Document | None:
    """Return the overview of the daemon; None if the request fails."""
    try:
        overview: Document = tool.api.get("overview").body["overview"]
    except ClientError:
        return None
    return overview


def _counters(progress: Document) -> dict[str, int]:
    compared = (progress.get("verification") or {}).get("destination", {})
    return {
        "bytes": copy_of(progress).copied,
        "events": progress.get("totalEventsApplied") or 0,
        "compared": compared.get("hashedDocumentCount", 0),
    }


def _step(progress: Document) -> tuple[Any, ...]:
    """Return a value that changes at each step of a sync, so that a new line is printed.

    A step is a change of the state, the phase or its stage (`ceaStage`), canCommit, canWrite, the role or the number of
    warnings, or another 10 % copied or compared.
    """
    names = ("state", "info", "ceaStage", "canCommit", "canWrite", "role")
    copy = copy_of(progress)
    verification = progress.get("verification")
    compared, documents = compared_of(verification) if verification else (0, None)
    return (
        *map(progress.get, names),
        copy.total and 10 * copy.copied // copy.total,
        documents and 10 * compared // documents,
        len(progress.get("warnings", ())),
    )


def end_watch(tool: Tool, progress: Document, holds: bool, condition: str) -> None:
    if not tool.json:
        if progress.get("error"):
            tool.say(f"{progress['error']}: {progress['errorDescription']}")
        elif not holds:
            tool.say(
                f"The sync is {progress['state']}. Without another command, this condition cannot become true: "
                f"{condition}."
            )
        tool.say(tool.next(next_sentence(tool, progress)))
    if not holds:
        tool.end(Exit.FAILED)
