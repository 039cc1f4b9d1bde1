"""The commands of `syncctl` that list collections, users and differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import islice

import click

from syncsvc.ctl import options
from syncsvc.ctl.client import Answer, Document
from syncsvc.ctl.facts import principals_text
from syncsvc.ctl.following import sentence_after_command, sentence_after_differences
from syncsvc.ctl.tables import mismatches_view, namespaces_view, users_view
from syncsvc.ctl.tool import Command, Tool, pass_tool

_SORTS = {
    "name": lambda each: each["namespace"],
    "size": lambda each: -each["estimatedTotalBytes"],
    "left": lambda each: each["copiedBytes"] - each["estimatedTotalBytes"],
    "changes": lambda each: -each["eventsApplied"],
    "mismatches": lambda each: -(each["verification"] or {"mismatches": 0})["mismatches"],
}


@click.command(cls=Command)
@options.text("--database", "NAME", "Show only the collections of this database.")
@options.text("--phase", "PHASE", "Show only the collections in this phase, such as copying.")
@click.option(
    "--sort",
    type=click.Choice([*_SORTS]),
    metavar="ORDER",
    default="name",
    show_default=True,
    help="Sort the collections by name, size, left (the most bytes left to copy first), changes or mismatches.",
)
@options.number("--limit", 50, "Show at most this many collections.")
@pass_tool
def namespaces(tool: Tool, database: str | None, phase: str | None, sort: str, limit: int) -> None:
    """Show the progress of each collection.

    With --json, prints the answers of the API, one page of collections per line; --phase, --sort and --limit have no
    effect.
    """
    found: list[Document] = []
    for answer in tool.api.namespaces(**({"database": database} if database else {})):
        if tool.json:
            tool.write(answer.text)
        found += answer.body["namespaces"]
    if tool.json:
        return
    fitting = [each for each in found if phase in (None, each["phase"])]
    shown = sorted(fitting, key=_SORTS[sort])[:limit]
    more = "" if len(shown) == len(fitting) else "; --limit shows more"
    tool.say(
        namespaces_view(shown, tool.console.width) if shown else None,
        f"{len(shown):,} of {len(fitting):,} collections{more}.",
        tool.next(f"{tool.name} status"),
    )


@click.command(cls=Command)
@options.flag("--copy", "Copy the users and roles now, before the commit.")
@pass_tool
def users(tool: Tool, copy: bool) -> None:
    """Show which users and roles a commit would copy, or copy them now.

    Only for a sync that was started with usersAndRoles.copy true. A user or role with the result conflict, missing or
    surplus prevents the copy and the commit. After --copy, the commit copies only new and changed users and roles,
    and those that have a changed role.
    """
    if copy:
        answer = tool.api.post("users")
        copied = f"Users and roles: {principals_text(answer.body['usersAndRoles'])}."
        tool.show(answer, copied, tool.next(f"{tool.name} users"))
        return
    answer = tool.api.get("users")
    found = answer.body["usersAndRoles"]
    tool.show(
        answer,
        (
            users_view(found)
            if found
            else "The start options select no users or custom roles of the source."
        ),
        tool.next(f"{tool.name} status"),
    )


@click.command(cls=Command)
@options.number("--limit", 100, "Show at most this many differences.")
@options.text(
    "--after",
    "PAGE_TOKEN",
    "Show only the differences after a given one. PAGE_TOKEN is the field `place` of that difference in the output "
    "of --json.",
)
@options.seconds(
    "--min-duration",
    "Omit documents that have differed for less than this many seconds. No effect with --repaired.",
)
@options.flag(
    "--repaired",
    "Show the differences that were or are being repaired, not the remaining differences.",
)
@pass_tool
def mismatches(
    tool: Tool, limit: int, after: str | None, min_duration: float | None, repaired: bool
) -> None:
    """List the differences that the verification has found and that remain; with --repaired, the repaired ones.

    While the sync runs, a difference may be a change that is not applied yet.
    """
    optional = {
        "after": after,
        "minDurationSecs": min_duration,
        "repaired": "true" if repaired else None,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    lines = tool.api.lines("mismatches", limit=limit + 1, **given)
    show_mismatches(tool, lines, limit, lambda: _after_mismatches(tool, repaired))


def _after_mismatches(tool: Tool, repaired: bool) -> str:
    if repaired:
        return sentence_after_command(tool)
    return sentence_after_differences(tool, f"{tool.name} repair --dry-run")


def show_mismatches(
    tool: Tool, lines: Iterable[Answer], limit: int, step: Callable[[], str]
) -> None:
    """Print at most `limit` of the mismatches in `lines`; without --json, also say whether there are more.

    `step` returns the next step to suggest to the operator. It is called only if the step is printed.
    """
    found = [*islice(lines, limit + 1)]
    shown = found[:limit]
    if tool.json:
        for each in shown:
            tool.write(each.text)
    elif not found:
        tool.say("No differences to show.")
    else:
        more = "; --limit shows more" if len(found) > limit else ""
        rows = mismatches_view((each.body for each in shown), json.dumps)
        tool.say(rows, f"Differences: {len(shown):,}{more}.", tool.next(step()))
