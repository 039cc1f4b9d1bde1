"""Estimates of the memory, disk space and oplog time a sync needs, compared with the available amounts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from syncsvc import errors
from syncsvc.figures.oplog_window import span_when_full
from syncsvc.figures.trends import in_words
from syncsvc.indexing import destined
from syncsvc.options import StartOptions
from syncsvc.preflight.findings import Findings, Measured
from syncsvc.preflight.privileges import NOTING
from verifier.runtime.errors import Violation

_MB = 1_000_000
# The factor covers the destination's oplog, its journal, and index builds before they are compacted.
_DISK_FACTOR = 1.25
# Conservative copy rates per second: large documents are limited by bytes, small ones by their number.
_COPIED_BYTES = 20 * _MB
_COPIED_DOCUMENTS = 20_000


@dataclass(frozen=True)
class Estimates:
    """Sizes in bytes, times in seconds; None if unknown, and `memory_needed` is None without verification.

    `indexes` counts the indexes that are built on the destination, excluding those on `_id`. `oplog_window_seconds` is
    how long the source's oplog keeps an entry, at the average write rate of its current contents.
    """

    namespaces: int | None = None
    documents: int | None = None
    bytes: int | None = None
    indexes: int | None = None
    disk_needed: int | None = None
    disk_free: int | None = None
    memory_needed: int | None = None
    memory_available: int | None = None
    copy_seconds: int | None = None
    oplog_window_seconds: int | None = None


def estimate(options: StartOptions, found: Findings, memory_needed: int) -> Estimates:
    contents = found.contents
    window = None if found.oplog is None else span_when_full(found.oplog)
    limits = {
        "disk_free": found.disk_free,
        "memory_needed": memory_needed if options.verification else None,
        "memory_available": found.memory_available,
        "oplog_window_seconds": None if window is None else int(window),
    }
    if contents is None:
        return Estimates(**limits)
    documents = sum(each.size.documents for each in contents)
    size = sum(each.size.bytes for each in contents)
    return Estimates(
        namespaces=len(contents),
        documents=documents,
        bytes=size,
        indexes=sum(len(_built(each, options)) for each in contents),
        disk_needed=_disk_needed(contents, options),
        copy_seconds=int(max(size / _COPIED_BYTES, documents / _COPIED_DOCUMENTS)),
        **limits,
    )


def _built(each: Measured, options: StartOptions) -> Collection[str]:
    return destined(each.definition, options).indexes


def _disk_needed(contents: Iterable[Measured], options: StartOptions) -> int:
    """Return the bytes needed on the destination's disk, from the size on the source, assuming equal compression."""
    taken = sum(
        each.size.on_disk
        + sum(each.size.indexes.get(name, 0) for name in ("_id_", *_built(each, options)))
        for each in contents
    )
    return int(taken * _DISK_FACTOR)


def resource_violations(options: StartOptions, estimates: Estimates) -> Iterator[Violation]:
    """Yield a violation for each resource that is too small; an unknown amount is no violation."""
    if _is_short(estimates.memory_needed, estimates.memory_available):
        yield errors.INSUFFICIENT_MEMORY, (
            f"A sync with verification may take {_shown(estimates.memory_needed)} of memory, "
            f"{_shown(estimates.memory_available)} are available to this process."
        )
    if not options.skip_disk_space_check and _is_short(estimates.disk_needed, estimates.disk_free):
        yield errors.INSUFFICIENT_DISK_SPACE, (
            f"The data and indexes may take {_shown(estimates.disk_needed)} on the destination's disk, "
            f"{_shown(estimates.disk_free)} are free."
        )


def _is_short(needed: int | None, there: int | None) -> bool:
    return needed is not None and there is not None and there < needed


def _shown(size: int | None) -> str:
    assert size is not None
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def warnings(options: StartOptions, found: Findings, estimates: Estimates) -> Iterator[str]:
    """Yield warnings of later problems, with the remedy to apply before the start; warnings never prevent a start."""
    window, copy = estimates.oplog_window_seconds, estimates.copy_seconds
    if found.oplog is None:
        yield (
            "The oplog of the source may not be read, so that nobody knows whether it is long enough: "
            "the built-in role clusterMonitor may."
        )
    elif window is not None and copy is not None and window < copy:
        yield (
            f"The oplog of the source ({_shown(found.oplog.limit)}) holds what is written in {in_words(window)} at the "
            f"rate of what is in it, and the copy may take {in_words(copy)}: enlarge it (replSetResizeOplog)."
        )
    if found.disk_free is None and not options.skip_disk_space_check:
        yield (
            "How much of the destination's disk is free is not known, so that nobody checked whether it will do: "
            "the built-in role clusterMonitor may read it."
        )
    if not found.source.tells_definitions:
        yield (
            f"The source runs {found.source.dotted_version}: servers before 6.0 do not report changes of definitions. "
            "Until the commit, do not create, drop, rename or change collections and indexes on the source: such a "
            "change ends the sync, or prevents the commit until it is undone. Writes of documents and changes of views "
            "are synced."
        )
    if NOTING.lacking(found.source):
        yield (
            f"The user of the source lacks {', '.join(NOTING.on_cluster)}, so that a commit waits for the source's own "
            f"periodic no-op: the built-in role {NOTING.role} has it."
        )
