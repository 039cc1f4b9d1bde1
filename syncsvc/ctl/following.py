"""Follows a sync, for `syncctl watch` and `syncctl commit --wait`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncsvc.ctl.advice import compared_of, copy_of, next_step
from syncsvc.ctl.client import Answer, ClientError, Document, progress_of
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.facts import sync_facts
from syncsvc.ctl.tool import Tool
from syncsvc.ctl.watching import Subject, Watch


def watch_sync(tool: Tool, timeout: float | None = None, answered: bool = False) -> Watch:
    subject = Subject(
        tool.api, lambda answer: read_progress(tool, answer), sync_facts, _step, _counters
    )
    return Watch(tool, subject, timeout, answered)


def read_progress(tool: Tool, answer: Answer) -> Document:
    return progress_of(answer, "state", f"{tool.api.url} is not a sync service")


def next_sentence(tool: Tool, progress: Document) -> str:
    """Return a sentence that tells the operator what to do next. After a failure or a commit, ask the daemon."""
    advice = _advice(tool) if progress["state"] in ("FAILED", "COMMITTED") else None
    return next_step(progress, tool.name, advice)


def present_sentence(tool: Tool) -> str:
    """Return the next step after a command has succeeded, from the present progress.

    If the daemon does not return its progress, the next step is to ask for it again.
    """
    try:
        return next_sentence(tool, tool.api.progress())
    except ClientError:
        return f"{tool.name} status"


def sentence_after_differences(tool: Tool, repair: str) -> str:
    """Return the next step after a list of differences: `repair`, if the daemon accepts a repair now.

    After a failure, return the step that the daemon names: only the daemon knows whether a repair is possible, and
    whether desiredState must be changed before it.
    """
    try:
        overview = tool.api.get("overview").body["overview"]
    except ClientError:
        return f"{tool.name} status"
    progress = overview["progress"]
    if progress["state"] == "FAILED" or "repair" not in overview["commands"]:
        return next_step(progress, tool.name, overview["next"])
    return repair


def sentence_after_plan(tool: Tool, repairs: Sequence[Document]) -> str:
    """Return the next step after a repair was planned. `repairs` are the planned actions, as the API returns them."""
    if repairs and all(each["action"].startswith("none") for each in repairs):
        return (
            "a repair changes none of these differences; the list says what to do. Then: "
            f"{present_sentence(tool)}"
        )
    return sentence_after_differences(tool, f"{tool.name} {'repair' if repairs else 'status'}")


def _advice(tool: Tool) -> Document | None:
    """Return the next step that the daemon names; None if it names none, or does not answer."""
    try:
        overview = tool.api.get("overview").body["overview"]
    except ClientError:
        return None
    step: Document | None = overview["next"]
    return step


def _counters(progress: Document) -> dict[str, int]:
    compared = (progress.get("verification") or {}).get("destination", {})
    return {
        "bytes": copy_of(progress)[0],
        "events": progress.get("totalEventsApplied") or 0,
        "compared": compared.get("hashedDocumentCount", 0),
    }


def _step(progress: Document) -> tuple[Any, ...]:
    """Return a value that changes at each step of a sync, so that a new line is printed.

    A step is a change of the state, the phase, canCommit, canWrite, the role or the number of warnings, or another 10 %
    copied or compared.
    """
    names = ("state", "info", "ceaStage", "canCommit", "canWrite", "role")
    copied, total = copy_of(progress)
    verification = progress.get("verification")
    compared, documents = compared_of(verification) if verification else (0, None)
    return (
        *map(progress.get, names),
        total and 10 * copied // total,
        documents and 10 * compared // documents,
        len(progress.get("warnings", ())),
    )


def end_watch(tool: Tool, progress: Document, holds: bool, condition: str) -> None:
    if not tool.json:
        if progress.get("error"):
            tool.say(f"{progress['error']}: {progress['errorDescription']}")
        elif not holds:
            tool.say(
                f"The sync is {progress['state']}, so this condition will not become true: {condition}."
            )
        tool.say(tool.next(next_sentence(tool, progress)))
    if not holds:
        tool.end(Exit.FAILED)
