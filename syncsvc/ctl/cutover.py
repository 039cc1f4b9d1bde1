"""The command that commits a sync."""

from __future__ import annotations

from threading import Event

import click
from rich.text import Text

from syncsvc.ctl import options
from syncsvc.ctl.advice import destination_name, next_step, obstacles
from syncsvc.ctl.client import Answer, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.following import end_watch, read_progress, watch_sync
from syncsvc.ctl.tool import Command, Tool, confirm, listed, pass_tool
from syncsvc.ctl.watching import INTERVAL, Watch


@click.command(cls=Command)
@options.flag("--wait", "Wait until a commit is possible, then until the sync is COMMITTED.")
@options.seconds("--max-lag", "Commit only while the destination is at most this far behind.")
@options.DRY_RUN
@options.flag("--yes", "Do not ask for a confirmation.")
@options.TIMEOUT
@pass_tool
def commit(
    tool: Tool, wait: bool, max_lag: float | None, dry_run: bool, yes: bool, timeout: float | None
) -> None:
    """Commit the sync: cut over to the destination.

    Stop the applications that write to the source first. Asks for the name of the destination as a confirmation, at the
    moment of the commit.
    """
    answer = tool.api.get("progress")
    progress = read_progress(tool, answer)
    if dry_run:
        _judge_commit(tool, answer, progress, max_lag)
        return
    watching = watch_sync(tool, timeout)
    if wait and progress["state"] == "COMMITTING":
        _await_end(tool, watching)
        return
    if wait:
        progress = _await_commit(tool, watching, progress, max_lag)
    if missing := obstacles(progress, max_lag):
        status = Exit.NOT_YET if progress["state"] == "RUNNING" else Exit.FAILED
        raise ClientError(status, "CannotCommit", " ".join(missing))
    if not yes:
        _confirm_commit(tool, progress)
    if not wait:
        answer = tool.api.post("commit")
        step = f"wait until applications may write: {tool.name} watch --until canWrite"
        tool.show(answer, "The commit has begun.", tool.next(step))
        return
    _send_until_accepted(tool, watching, max_lag)
    _await_end(tool, watching)


def _send_until_accepted(tool: Tool, watching: Watch, max_lag: float | None) -> None:
    """Send the commit. If the daemon has withdrawn canCommit meanwhile, wait until it is true again."""
    pause = Event()
    while True:
        try:
            tool.api.post("commit")
            return
        except ClientError as error:
            if error.error != "CannotCommit":
                raise
        pause.wait(INTERVAL)
        _await_commit(tool, watching, tool.api.progress(), max_lag)


def _judge_commit(tool: Tool, answer: Answer, progress: Document, max_lag: float | None) -> None:
    missing = obstacles(progress, max_lag)
    if not missing:
        step = f"stop the applications that write to the source, then: {tool.name} commit --wait"
        tool.show(answer, Text("A commit is possible now.", "bold green"), tool.next(step))
        return
    step = next_step(progress, tool.name)
    heading = Text("A commit is not possible now:", "bold yellow")
    tool.show(answer, heading, *listed(missing), tool.next(step))
    tool.end(Exit.NOT_YET if progress["state"] == "RUNNING" else Exit.FAILED)


# Otherwise a commit will not become possible by waiting.
_LEADS_TO_A_COMMIT = ("INITIALIZING", "RUNNING", "REVERSING")


def _await_commit(
    tool: Tool, watching: Watch, progress: Document, max_lag: float | None
) -> Document:
    if progress["state"] in _LEADS_TO_A_COMMIT and not obstacles(progress, max_lag):
        return progress
    return watching.until(
        lambda now: now["state"] not in _LEADS_TO_A_COMMIT or not obstacles(now, max_lag)
    )


def _confirm_commit(tool: Tool, progress: Document) -> None:
    mapping = progress["directionMapping"]
    confirm(
        tool,
        destination_name(progress) or "",
        "--yes",
        f"This commits the sync from {mapping['Source']} to {mapping['Destination']}.",
        "WARNING: later writes to the source are not synced. Stop the applications that write to it first.",
    )


def _await_end(tool: Tool, watching: Watch) -> None:
    progress = watching.until(
        lambda now: now["canWrite"] or now["state"] not in ("COMMITTING", "RUNNING")
    )
    if progress["canWrite"] and progress["state"] == "COMMITTING" and not tool.json:
        tool.say(Text("Applications may write to the destination now.", "bold green"))
    progress = watching.until(lambda now: now["state"] not in ("COMMITTING", "RUNNING"))
    end_watch(tool, progress, progress["state"] == "COMMITTED", "committed")
