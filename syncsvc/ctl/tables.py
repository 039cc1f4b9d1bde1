"""Renders the answers of the API as tables and texts for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, JustifyMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from syncsvc.ctl.client import Document
from syncsvc.ctl.facts import Fact
from syncsvc.ctl.text import count, duration, percent, printable, share, size

_NAMES_SHOWN = 50
# The table of collections needs these widths for all its columns with a namespace of 30 characters, and for
# `_NARROW_COLUMNS` with one of 15.
_WIDE = 120
_NARROW = 60
Row = tuple[str, RenderableType]


def plain(text: object, style: str = "") -> Text:
    """Return a text with control characters escaped. A text that is too long for its column is wrapped."""
    return Text(printable(str(text)), style, overflow="fold")


def grid(rows: Iterable[Row]) -> Table:
    """Return a table without borders, with a label and a value in each row."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(plain(label), plain(value) if isinstance(value, str) else value)
    return table


def table(heads: Mapping[str, bool], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table with these rows. `heads` maps column titles to whether the column holds numbers."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title, is_number in heads.items():
        justify: JustifyMethod = "right" if is_number else "left"
        shown.add_column(title, justify=justify, no_wrap=is_number, overflow="fold")
    for row in rows:
        shown.add_row(*(plain(each) for each in row))
    return shown


def facts_view(facts: Iterable[Fact], bar_width: int) -> RenderableType:
    """Render facts as rows with progress bars of `bar_width` characters; if `bar_width` is 0, only with percentages."""
    return grid((fact.label, _fact(fact, bar_width)) for fact in facts)


def _fact(fact: Fact, bar_width: int) -> RenderableType:
    text = plain(fact.text, fact.style)
    if fact.fraction is None:
        return text
    if not bar_width:
        return Text.assemble(f"{percent(fact.fraction)}, ", text)
    line = Table.grid(padding=(0, 1))
    line.add_column(width=bar_width)
    line.add_column(justify="right", width=5, no_wrap=True)
    line.add_column(overflow="fold")
    done = ProgressBar(total=1.0, completed=fact.fraction, width=bar_width)
    line.add_row(done, percent(fact.fraction), text)
    return line


def preflight_view(answer: Document) -> RenderableType:
    """Render the answer to a preflight."""
    rows: list[Row] = [
        ("VIOLATION", plain(f"{each['error']}: {each['errorDescription']}", "red"))
        for each in answer["violations"]
    ]
    rows += [("WARNING", plain(each, "yellow")) for each in answer["warnings"]]
    rows += [
        ("missing", f"{each['feature']} on {each['cluster']}: {each['effect']}")
        for each in answer.get("missingFeatures", ())
    ]
    rows += _estimates(answer["estimates"])
    if principals := answer.get("usersAndRoles"):
        rows.append(("users and roles", _planned(principals)))
    if answer["violations"]:
        return Group(grid(rows), Text("A start would be refused.", "bold red"))
    return Group(grid(rows), Text("A start would succeed.", "bold green"))


def _planned(principals: Document) -> str:
    users, roles = count(principals["users"]), count(principals["roles"])
    others = {
        "equal": "equal",
        "kept": "different on the destination, left unchanged there",
        "conflicts": "prevent the start and the commit",
    }
    rest = [
        f"{count(principals[name])} {text}" for name, text in others.items() if principals[name]
    ]
    return "; ".join([f"users to copy: {users}", f"roles to copy: {roles}", *rest])


def _estimates(found: Document) -> list[Row]:
    """Return rows with the estimates of a preflight; an estimate that is None is shown as `unknown`."""
    texts = {
        "to sync": (
            "collections and views: {namespaces}; documents: {documents}; size: {bytes}; indexes: {indexes}"
        ),
        "copy": "estimated time: {copySeconds}",
        "oplog": "time for which the oplog of the source keeps a change: {oplogWindowSeconds}",
        "disk": "needed: {diskNeededBytes}; free on the destination: {diskFreeBytes}",
        "memory": "needed: {memoryNeededBytes}; available: {memoryAvailableBytes}",
    }
    known = {name: _estimate(name, value) for name, value in found.items()}
    return [(label, text.format_map(known)) for label, text in texts.items()]


def _estimate(name: str, value: float | None) -> str:
    if name.lower().endswith("bytes"):
        return size(value)
    return duration(value) if name.endswith("Seconds") else count(value)


def namespaces_view(found: Sequence[Document], width: int) -> RenderableType:
    """Render the progress of collections as a table; omit some columns if `width` characters are too few for all."""
    columns = (
        [*_COLUMNS] if width >= _WIDE else _NARROW_COLUMNS if width >= _NARROW else _LEAST_COLUMNS
    )
    heads = {title: title not in ("namespace", "phase") for title in columns}
    return table(heads, ([_COLUMNS[title](each) for title in columns] for each in found))


def _names(each: Document) -> str:
    """Return the name that the collection or view in the row `each` has on the source.

    If it has another name on the destination, ` -> ` and this name follow.
    """
    there = each.get("destinationNamespace")
    return str(each["namespace"]) if there is None else f"{each['namespace']} -> {there}"


def _copied(each: Document) -> str:
    if each["phase"] == "waiting":
        return "0 %"
    return percent(share(each["copiedBytes"], each["estimatedTotalBytes"]))


def _compared(each: Document) -> str:
    verification = each["verification"]
    if verification is None:
        return "-"
    documents, total = verification["comparedDocuments"], verification["estimatedTotalDocuments"]
    return percent(share(documents, total))


def _indexes(each: Document) -> str:
    built = each["indexesBuilt"]
    return f"{'-' if built is None else built} of {each['totalIndexes']}"


_COLUMNS: Mapping[str, Callable[[Document], str]] = {
    "namespace": _names,
    "phase": lambda each: str(each["phase"]),
    "copied": _copied,
    "documents": lambda each: count(each["estimatedTotalDocuments"]),
    "size": lambda each: size(each["estimatedTotalBytes"]),
    "rate": lambda each: f"{size(each['bytesPerSecond'])}/s" if each["bytesPerSecond"] else "-",
    "changes": lambda each: count(each["eventsApplied"]),
    "indexes": _indexes,
    "compared": _compared,
    "mismatches": lambda each: (
        count(each["verification"]["mismatches"]) if each["verification"] else "-"
    ),
}
_NARROW_COLUMNS = ["namespace", "copied", "size", "compared", "mismatches"]
_LEAST_COLUMNS = ["namespace", "copied", "mismatches"]


def mismatches_view(lines: Iterable[Document], shown_id: Any) -> RenderableType:
    """Render mismatches as a table. `lines` are mismatches as the API returns them.

    `shown_id` is a function that returns the text to show for an _id.
    """
    heads = {"type": False, "namespace": False, "what": False, "detail": False, "for": True}
    rows = (
        (
            each["type"],
            _names(each),
            _subject(each, shown_id),
            each["detail"] if "aspect" in each else _fields(each["fields"]),
            duration(each["durationSecs"]),
        )
        for each in lines
    )
    return table(heads, rows)


def _subject(each: Document, shown_id: Any) -> str:
    if "aspect" in each:
        return f"{each['aspect']} {each['component']}".rstrip()
    return f"{each['idType']} {shown_id(each['_id'])}"


def _fields(found: Sequence[Document]) -> str:
    return "; ".join(f"{each['path'] or 'the document'}: {each['detail']}" for each in found)


def repairs_view(answer: Document) -> RenderableType:
    heads = {"difference": False, "repair": False}
    rows = ((each["difference"], each["action"]) for each in answer["repairs"])
    total = (
        f"Differences in documents: {count(answer['documents'])}; in definitions or document counts: "
        f"{count(answer['definitions'])}."
    )
    return Group(*([table(heads, rows)] if answer["repairs"] else []), plain(total))


def users_view(found: Sequence[Document]) -> RenderableType:
    """Render a table of the users and roles, with the result that a commit would have for each."""
    heads = {"type": False, "name": False, "database": False, "result": False, "detail": False}
    return table(heads, ([each[title] for title in heads] for each in found))


def reset_view(answer: Document) -> RenderableType:
    """Render the changes that a reset would make, as the dry run of a reset has listed them in `answer`."""
    titles = {
        "collections": "drops the collections",
        "views": "drops the views",
        "usersAndRoles": "drops the users and roles",
        "kept": "keeps (not created by the sync)",
        "unblocked": "unblocks user writes on",
        "balancersStarted": "starts the balancer of",
    }
    return grid((titles[name], _enumerated(answer[name])) for name in titles if name in answer)


def _enumerated(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    listed = ", ".join(names[:_NAMES_SHOWN]) or "-"
    return f"{listed} and {more:,} more; --json lists all" if more > 0 else listed
