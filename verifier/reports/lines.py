"""Writes the report of a check as lines of text, for a terminal or the log. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tabulate import tabulate

from verifier.cluster.keys import shown
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import (
    Amounts,
    Changes,
    CheckProgress,
    NamespaceProgress,
)
from verifier.compare.mismatch import (
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    StoredMismatch,
)
from verifier.overview import after, meaning
from verifier.runtime.quantities import duration_text, size_text, visible

# The maximum number of mismatches of each kind in the report.
SHOWN = 20
# The maximum width of a cell, in characters, and the maximum number of rows of the table of namespaces.
_WIDEST = 80
_MOST_NAMESPACES = 100


def report(
    progress: CheckProgress,
    documents: Sequence[StoredMismatch],
    definitions: Sequence[StoredMismatch],
) -> list[str]:
    """Return the lines of the report of a check.

    `documents` and `definitions` are the mismatches of documents and definitions. The first `SHOWN` of each are listed.
    Control characters are escaped or replaced by spaces, so that names cannot alter the display of a terminal, or look
    like separate lines.
    """
    verdict = _verdict(progress)
    parts = [
        [verdict, *_reasons(progress)],
        [*_compared(progress)],
        [*_namespaces(progress.namespaces)],
        [*_document_mismatches(progress.mismatches.documents, documents)],
        [*_definition_mismatches(progress.mismatches.definitions, definitions)],
        [*_changes(progress)],
        [*_listed("Notes", progress.notes)],
        [verdict],
    ]
    lines = [line for part in parts if part for line in (*part, "")]
    return [*map(visible, lines[:-1])]


def _verdict(progress: CheckProgress) -> str:
    if progress.verdict is None:
        return "The check has not finished."
    outcome = progress.verdict.outcome
    return f"{outcome.name}{meaning(progress, outcome)} {after(progress, outcome)}"


def _reasons(progress: CheckProgress) -> Iterator[str]:
    verdict = progress.verdict
    if verdict is not None:
        name = "" if verdict.error is None else f"{verdict.error}: "
        yield from (f"- {name}{reason}" for reason in verdict.reasons)


def _compared(progress: CheckProgress) -> Iterator[str]:
    amounts = progress.first or progress.amounts
    yield (
        f"Compared {_count(amounts.documents, 'document')}{_of_all(amounts)}, "
        f"{size_text(amounts.size)}, in {_count(amounts.namespaces, 'collection')}."
    )
    if progress.generation:
        yield (
            f"Made {_count(progress.rechecked, 'recheck')} "
            f"in {_count(progress.generation, 'recheck generation')}."
        )
    if progress.started is not None and progress.ended is not None:
        seconds = progress.ended - progress.started
        yield f"Duration: {duration_text(seconds)}{_rates(progress)}."


def _rates(progress: CheckProgress) -> str:
    """Return how fast generation 0 compared; empty if that is unknown. The later generations compare few documents."""
    amounts, started, ended = progress.first, progress.started, progress.first_ended
    if amounts is None or started is None or ended is None or ended <= started:
        return ""
    documents, size = (each / (ended - started) for each in (amounts.documents, amounts.size))
    return (
        f"; the first comparison read {_count(round(documents), 'document')} and {size_text(size)} per "
        "second on average"
    )


def _of_all(amounts: Amounts) -> str:
    if not amounts.total_documents or amounts.documents >= amounts.total_documents:
        return ""
    share = _percent(amounts.documents, amounts.total_documents)
    return f" of about {amounts.total_documents:,} ({share})"


def _namespaces(namespaces: Mapping[Namespace, NamespaceProgress]) -> Iterator[str]:
    """Yield the lines of the table of the hundred namespaces with the most compared bytes, in descending order."""
    if not namespaces:
        return
    largest = sorted(namespaces.items(), key=lambda each: (-each[1].size, str(each[0])))
    rows = [
        (
            str(name),
            f"{each.documents:,}",
            _percent(each.documents, each.total_documents),
            size_text(each.size),
            f"{each.tasks_done:,} of {each.tasks:,}",
        )
        for name, each in largest[:_MOST_NAMESPACES]
    ]
    yield from _title("Namespaces", len(rows), len(namespaces))
    yield from _table(("namespace", "documents", "compared", "size", "tasks done"), rows, "lrrrr")


def _document_mismatches(
    counts: Mapping[Difference, int], stored: Sequence[StoredMismatch]
) -> Iterator[str]:
    total = sum(counts.values())
    if not total:
        return
    rows = [
        (
            str(each.difference),
            each.names,
            shown(each.key),
            "; ".join(map(str, each.fields)),
        )
        for each in (stored_one.mismatch for stored_one in stored[:SHOWN])
        if isinstance(each, DocumentMismatch)
    ]
    yield from _title("Documents that differ", len(rows), total)
    kinds = (f"{count:,} {difference}" for difference, count in counts.items() if count)
    yield f"{', '.join(kinds)}."
    yield from _table(("type", "namespace", "_id", "fields"), rows, "llll")


def _definition_mismatches(total: int, stored: Sequence[StoredMismatch]) -> Iterator[str]:
    if not total:
        return
    rows = [
        (
            str(each.difference),
            each.names,
            f"{each.aspect.value} {each.component}".rstrip(),
            each.detail,
        )
        for each in (stored_one.mismatch for stored_one in stored[:SHOWN])
        if isinstance(each, DefinitionMismatch)
    ]
    yield from _title("Collections, views and indexes that differ", len(rows), total)
    yield from _table(("type", "namespace", "what", "detail"), rows, "llll")


def _changes(progress: CheckProgress) -> Iterator[str]:
    clusters = {"source": progress.source, "destination": progress.destination}
    lines = [line for name, changes in clusters.items() for line in _seen(name, changes)]
    yield from _listed("Change events during the check", lines)


def _seen(name: str, changes: Changes) -> Iterator[str]:
    if any(changes.seen.values()):
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in changes.seen.items() if count)
        yield f"{name}: {kinds}"


def _listed(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield title
        yield from (f"- {item}" for item in items)


def _title(text: str, shown: int, total: int) -> Iterator[str]:
    yield text if shown >= total else f"{text}: first {shown:,} of {total:,}"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], alignment: str) -> Iterator[str]:
    sides = [{"l": "left", "r": "right"}[side] for side in alignment]
    cells = [[*map(_cut, row)] for row in rows]
    # Every cell is already text: do not let tabulate convert the key "007" to the number 7.
    table = tabulate(cells, headers, "simple", colalign=sides, disable_numparse=True)
    yield from table.splitlines()


def _cut(text: str) -> str:
    """Return the text as one line, cut to the maximum width of a cell."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _percent(part: int, whole: int | None) -> str:
    """Return `part` as a percentage of `whole`: "100 %" only if it is complete, and "0.0 %" only if `part` is 0.

    Return an empty string if `whole` is unknown (None), and "100 %" if `whole` is 0.
    """
    if not whole:
        return "" if whole is None else "100 %"
    if part >= whole:
        return "100 %"
    return f"{max(int(1000 * part / whole), 1 if part else 0) / 10} %"
