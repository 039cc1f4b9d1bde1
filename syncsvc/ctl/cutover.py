"""The command `syncctl commit`, which commits a sync."""

from __future__ import annotations

import click
from rich.text import Text

from syncsvc.ctl import options
from syncsvc.ctl.advice import destination_name, is_replaced, obstacles
from syncsvc.ctl.client import Answer, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.following import (
    collection_count,
    end_watch,
    next_sentence,
    read_progress,
    to_others,
    watch_sync,
    why_not_committed,
)
from syncsvc.ctl.text import count
from syncsvc.ctl.tool import Command, Tool, confirm, listed, pass_tool, require_terminal
from syncsvc.ctl.watching import Watch

_YES = "--yes"
# The states of a sync whose commit was accepted and has not failed.
_COMMITS = ("COMMITTING", "COMMITTED")


@click.command(cls=Command)
@options.flag(
    "--wait", "Wait until a commit is possible, commit, then wait until the sync is COMMITTED."
)
@options.seconds(
    "--max-lag", "Commit only while the destination is at most this many seconds behind the source."
)
@options.DRY_RUN
@options.flag(_YES, "Do not ask for a confirmation.")
@options.TIMEOUT
@pass_tool
def commit(
    tool: Tool, wait: bool, max_lag: float | None, dry_run: bool, yes: bool, timeout: float | None
) -> None:
    """Commit the sync: cut over to the destination.

    Stop the applications that write to the source first. Just before it sends the commit, the command warns if the sync
    contains no collections. Unless --yes is given, it also shows the number of synced collections, and asks for the
    name of the destination as a confirmation.
    """
    answer = tool.api.get("progress")
    progress = read_progress(tool, answer)
    if dry_run:
        _judge_commit(tool, answer, progress, max_lag)
        return
    _refuse_on_standby(progress)
    if wait:
        watching = watch_sync(tool, timeout, answered=True)
        _commit_and_follow(tool, watching, progress, max_lag, yes)
        return
    _refuse_unless_possible(tool, progress, max_lag)
    progress = _confirmed(tool, progress, yes)
    _refuse_unless_possible(tool, progress, max_lag)
    answer = tool.api.post("commit")
    step = f"{to_others(tool)}wait until applications may write: {tool.name} watch --until canWrite"
    tool.show(answer, "The daemon has accepted the commit.", tool.next(step))


def _commit_and_follow(
    tool: Tool, watching: Watch, progress: Document, max_lag: float | None, yes: bool
) -> None:
    """Wait until a commit is possible, commit, and follow the commit to its end.

    Unless `yes`, ask for a confirmation before the commit. If the commit is already running or complete, for example
    because another operator has sent it, only follow it.
    """
    if progress["state"] not in _COMMITS and not yes:
        # A script must not wait for hours before it fails.
        require_terminal(_YES)
    progress = _await_commit(watching, progress, max_lag)
    if progress["state"] not in _COMMITS:
        _refuse_unless_possible(tool, progress, max_lag)
        progress = _confirmed(tool, progress, yes)
        _send_until_accepted(tool, watching, progress, max_lag)
        if others := to_others(tool):
            tool.say(tool.next(f"{others}the commit begins."))
    elif progress["state"] == "COMMITTED" and not tool.json:
        mapping = progress["directionMapping"]
        tool.say(
            f"The sync from {mapping['Source']} to {mapping['Destination']} is already committed."
        )
    _await_end(tool, watching)


def _refuse_on_standby(progress: Document) -> None:
    """Raise ClientError if a standby would have to send the commit; to follow a commit, it may be asked, too."""
    if progress.get("role") == "standby" and progress["state"] not in _COMMITS:
        address = (progress.get("lease") or {}).get("address")
        where = "" if address is None else f" ({address})"
        text = f"this daemon is a standby. Send the commit to the active daemon{where}."
        raise ClientError(Exit.FAILED, "NotActive", text)


def _refuse_unless_possible(tool: Tool, progress: Document, max_lag: float | None) -> None:
    if missing := why_not_committed(tool, progress, max_lag):
        status = Exit.NOT_YET if progress["state"] == "RUNNING" else Exit.FAILED
        raise ClientError(status, "CannotCommit", " ".join(missing))


# After one of these errors, the progress shows whether the commit has begun, or can still begin: the daemon may be
# executing this commit, or that of another operator.
_UNDECIDED = ("CannotCommit", "CommandInProgress", "InvalidState", "ClusterUnreachable")


def _send_until_accepted(
    tool: Tool, watching: Watch, progress: Document, max_lag: float | None
) -> None:
    """Wait until a commit is possible, send it, and retry until this or another operator's commit is accepted.

    If no answer arrives, or the answer is an error after which the commit may have begun or can still begin, read the
    progress before a retry. `progress` is the last progress read, and `max_lag` the largest permitted lag in seconds
    (None: no limit). Raises ClientError if waiting cannot make a commit possible, if the daemon answers a request with
    another error, or when the timeout of `watching` is over.
    """
    while True:
        progress = _await_commit(watching, progress, max_lag)
        if progress["state"] in _COMMITS:
            return
        _refuse_unless_possible(tool, progress, max_lag)
        try:
            tool.api.post("commit")
            return
        except ClientError as error:
            if error.error not in _UNDECIDED and error.status is not Exit.UNREACHABLE:
                raise
        watching.pause()
        progress = watching.until(lambda _: True)


def _judge_commit(tool: Tool, answer: Answer, progress: Document, max_lag: float | None) -> None:
    missing, step = why_not_committed(tool, progress, max_lag), next_sentence(tool, progress)
    if not missing:
        tool.show(answer, Text("A commit is possible now.", "bold green"), tool.next(step))
        return
    heading = Text("A commit is not possible now:", "bold yellow")
    tool.show(answer, heading, *listed(missing), tool.next(step))
    tool.end(Exit.NOT_YET if progress["state"] == "RUNNING" else Exit.FAILED)


_NOTHING_HELD = (
    "WARNING: the sync contains no collections, so it copies no documents. Do not commit unless you expect this: "
    "compare includeNamespaces and excludeNamespaces with the names on the source."
)
# The states in which waiting can make a commit possible.
_LEADS_TO_A_COMMIT = ("INITIALIZING", "RUNNING", "REVERSING")


def _await_commit(watching: Watch, progress: Document, max_lag: float | None) -> Document:
    def is_decided(now: Document) -> bool:
        may_wait = now["state"] in _LEADS_TO_A_COMMIT or is_replaced(now)
        return not (may_wait and obstacles(now, max_lag))

    return progress if is_decided(progress) else watching.until(is_decided)


_BLOCKED = "WARNING: the commit blocks user writes to the source. First stop the applications that write to the source."
_NOT_BLOCKED = (
    "WARNING: the commit does not block user writes to the source, and writes after the commit are not synced. Stop "
    "all applications that write to the source before you confirm."
)


def _confirmed(tool: Tool, progress: Document, yes: bool) -> Document:
    """Ask for a confirmation, and return the progress read after it; with `yes`, do not ask, and return `progress`.

    The progress is read again because the lag may have grown in the meantime. In both cases, warn if the sync contains
    no collection, for example because of a typing error in its filters.
    """
    held = collection_count(tool)
    if held == 0:
        tool.errors.print(Text(_NOTHING_HELD, "bold yellow"))
    if yes:
        return progress
    mapping = progress["directionMapping"]
    amount = [f"The number of synced collections is {count(held)}."] if held else []
    blocks = progress.get("enableUserWriteBlocking") == "sourceAndDestination"
    confirm(
        tool,
        destination_name(progress) or "",
        _YES,
        f"This command commits the sync from {mapping['Source']} to {mapping['Destination']}.",
        *amount,
        _BLOCKED if blocks else _NOT_BLOCKED,
    )
    return tool.api.progress()


# The states from which an accepted commit can still be completed. A restarted daemon is INITIALIZING first.
_LEADS_TO_THE_END = ("INITIALIZING", "COMMITTING")
_WITHDRAWN = (
    "the sync is RUNNING, so the commit is no longer requested: probably, the sync has failed during the commit, and "
    "was resumed. See the log of the daemon for the cause. To commit again, stop the applications that write to the "
    "source, then: {} commit --wait"
)


def _await_end(tool: Tool, watching: Watch) -> None:
    """Follow an accepted commit to its end. Raises ClientError if the commit has failed and the sync was resumed."""
    progress = watching.until(lambda now: now["canWrite"] or _has_ended(now))
    if progress["canWrite"] and progress["state"] == "COMMITTING" and not tool.json:
        tool.say(Text("Applications may write to the destination now.", "bold green"))
    progress = watching.until(_has_ended)
    if progress["state"] == "RUNNING":
        raise ClientError(Exit.FAILED, "CommitWithdrawn", _WITHDRAWN.format(tool.name))
    end_watch(tool, progress, progress["state"] == "COMMITTED", "committed")


def _has_ended(progress: Document) -> bool:
    if progress["state"] == "RUNNING":
        # A standby may show a progress from before the commit, and a declared commit is requested again.
        is_old = progress.get("role") == "standby"
        return not is_old and progress.get("desiredState") != "committed"
    return progress["state"] not in _LEADS_TO_THE_END and not is_replaced(progress)
