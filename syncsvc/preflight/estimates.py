"""Estimates the resources that a sync needs, and yields violations and warnings before a start.

The resources are memory, disk space and the time that the oplog covers. Some warnings are about other problems. The
functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncsvc import errors
from syncsvc.figures.oplog_window import span_when_full
from syncsvc.figures.trends import in_words
from syncsvc.options import EventSpool, StartOptions
from syncsvc.preflight.findings import Findings, Measured
from syncsvc.principals import comparison
from syncsvc.rules import hidden_measurements
from syncsvc.rules.indexing import built
from syncsvc.rules.unmatched_filters import filter_warnings
from verifier.cluster.namespace import some_of
from verifier.cluster.privileges import NOTING
from verifier.runtime.errors import Violation

_MB = 1_000_000
# The factor adds room for the destination's oplog and journal, and for new indexes that are not compacted yet.
_DISK_FACTOR = 1.25
# Conservative copy rates per second: large documents are limited by bytes, small ones by their number.
_COPIED_BYTES = 20 * _MB
_COPIED_DOCUMENTS = 20_000


@dataclass(frozen=True)
class Estimates:
    """The estimated needs of a sync, and the available resources. A value that is unknown is None."""

    # The numbers of collections and views, and of documents, that will be synced, and the size of the documents.
    namespaces: int | None = None
    documents: int | None = None
    bytes: int | None = None
    # The number of indexes that the start option `buildIndexes` selects, without those on `_id`.
    indexes: int | None = None
    # The space on the destination's disk, in bytes.
    disk_needed: int | None = None
    disk_free: int | None = None
    # The memory of this process, in bytes. The needed memory is also None without verification.
    memory_needed: int | None = None
    memory_available: int | None = None
    # The estimated duration of the copy, in seconds.
    copy_seconds: int | None = None
    # How many seconds the source's oplog keeps an entry, at the average write rate of its current contents.
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
        indexes=sum(len(built(each.definition, options)) for each in contents),
        disk_needed=_disk_needed(contents, options),
        copy_seconds=int(max(size / _COPIED_BYTES, documents / _COPIED_DOCUMENTS)),
        **limits,
    )


def _disk_needed(contents: Iterable[Measured], options: StartOptions) -> int:
    """Return the estimated bytes that the sync needs on the destination's disk.

    The estimate is the size on the source's disk of the documents, the `_id` indexes and the indexes that the sync
    builds, plus a margin. It assumes that both clusters compress equally well. It does not include the rechecks of the
    verification, because the number of documents that will change is unknown.
    """
    taken = sum(
        each.size.on_disk
        + sum(each.size.indexes.get(name, 0) for name in ("_id_", *built(each.definition, options)))
        for each in contents
    )
    return int(taken * _DISK_FACTOR)


def resource_violations(
    options: StartOptions, estimates: Estimates, spool_limit: int
) -> Iterator[Violation]:
    """Yield a violation for each resource that is too small; an unknown amount is no violation.

    The disk is not checked if the start option `skipDiskSpaceCheck` is true. `spool_limit` is the size limit of the
    event spools of all instances together, in bytes. It counts only if the start option `eventSpool` is `always`.
    """
    shortage = _spool_shortage(options, estimates, spool_limit)
    if shortage and options.event_spool is EventSpool.ALWAYS and not options.skip_disk_space_check:
        yield errors.INSUFFICIENT_DISK_SPACE, shortage
    yield from memory_violations(estimates)
    if not options.skip_disk_space_check and _is_short(estimates.disk_needed, estimates.disk_free):
        yield errors.INSUFFICIENT_DISK_SPACE, (
            f"The data and indexes may need {_shown(estimates.disk_needed)} on the destination's disk, "
            f"but only {_shown(estimates.disk_free)} are free."
        )


def memory_violations(estimates: Estimates) -> Iterator[Violation]:
    """Yield a violation if less memory is available to this process than a verification may need.

    Yield nothing without verification, or if an amount is unknown.
    """
    if _is_short(estimates.memory_needed, estimates.memory_available):
        yield errors.INSUFFICIENT_MEMORY, (
            f"A sync with verification may need {_shown(estimates.memory_needed)} of memory, "
            f"but only {_shown(estimates.memory_available)} are available to this process."
        )


def _spool_shortage(options: StartOptions, estimates: Estimates, spool_limit: int) -> str | None:
    """Describe the shortage if the destination's disk has room for the data, but not also for a full event spool.

    Return None in all other cases: there is room for both, the needed or the free space is unknown, the spool is
    disabled, or the disk is too small even for the data. `spool_limit` is in bytes.
    """
    needed, free = estimates.disk_needed, estimates.disk_free
    if options.event_spool is EventSpool.NEVER or needed is None:
        return None
    if _is_short(needed, free) or not _is_short(needed + spool_limit, free):
        return None
    return (
        f"The data and indexes may need {_shown(needed)} on the destination's disk, and the event spool up to "
        f"{_shown(spool_limit)} (--eventSpoolMB for each instance), but only {_shown(free)} are free."
    )


def _is_short(needed: int | None, available: int | None) -> bool:
    return needed is not None and available is not None and available < needed


def _shown(size: int | None) -> str:
    assert size is not None
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def warnings(
    options: StartOptions, found: Findings, estimates: Estimates, spool_limit: int = 0
) -> Iterator[str]:
    """Yield warnings about problems that may occur during the sync. Most say what to do before the start.

    Warnings never prevent a start. `spool_limit` is the size limit of the event spools of all instances together, in
    bytes.
    """
    yield from filter_warnings(found.filter_matches)
    if found.hidden:
        yield hidden_measurements.warning(found.hidden)
    yield from _oplog_warnings(options, found, estimates)
    shortage = _spool_shortage(options, estimates, spool_limit)
    if shortage and options.event_spool is EventSpool.AUTO:
        yield (
            f"{shortage} If the oplog of the source becomes too short and the spool must be used, the disk may become "
            "full: free space on the destination, restart the process with a lower --eventSpoolMB, or enlarge the "
            "oplog."
        )
    if found.disk_free is None and not options.skip_disk_space_check:
        yield (
            "The free disk space of the destination is unknown, so it was not checked. If the disk becomes full, the "
            "sync cannot continue: check the space yourself. If the user of the destination may not run dbStats, you "
            "can instead grant the built-in role clusterMonitor, and request a preflight again."
        )
    if not found.source.reports_ddl:
        yield f"The source runs MongoDB {found.source.dotted_version}; {_unreported(options)}"
    if found.principals is not None:
        yield from comparison.warnings(found.principals, _synced_databases(options, found))
    yield from _id_warnings(found)
    if NOTING.lacking(found.source):
        yield (
            f"The user of the source lacks the privilege {', '.join(NOTING.on_cluster)}, so a commit waits up to 10 "
            "seconds for the source's own periodic no-op. To avoid this, grant the user the built-in role "
            f"{NOTING.role}."
        )


def _unreported(options: StartOptions) -> str:
    """Return the end of a warning for a source before MongoDB 6.0: which DDL operations to avoid, and why."""
    known = "servers before 6.0 do not report every DDL event."
    if options.instances:
        return (
            f"{known} Several instances cannot apply the unreported events: until the commit, do not create, drop, "
            "rename or modify collections and indexes on the source. Such a change fails the sync, or prevents the "
            "commit until it is undone. Document writes and changes of views are synced."
        )
    return (
        f"{known} The sync finds the unreported changes by comparing definitions, and applies them a little later. A "
        "collection that is created, renamed or replaced is copied as a whole, and other changes are applied after the "
        "copy. Do not create time-series collections before the commit, and stop DDL operations before you request the "
        "commit."
    )


def _synced_databases(options: StartOptions, found: Findings) -> set[str] | None:
    """Return the databases with synced collections or views.

    Return None if the sync has no filter of namespaces, so that all databases count, or if the contents of the source
    are unknown.
    """
    if found.contents is None or not (options.include_namespaces or options.exclude_namespaces):
        return None
    return {each.definition.namespace.database for each in found.contents}


def _id_warnings(found: Findings) -> Iterator[str]:
    """Yield a warning if collections of a sharded source may hold several documents with the same `_id`."""
    names = [
        each.definition.namespace
        for each in found.contents or ()
        if each.definition.shard_key and [*each.definition.shard_key["key"]] != ["_id"]
    ]
    if names:
        yield (
            f"Servers keep _id unique only within each shard, so {some_of(names)} may hold several documents with the "
            "same _id. The sync cannot tell such documents apart, so it fails with DuplicateIds when it reads them. If "
            "your applications choose the values of _id, look for duplicates before the start (aggregate with "
            "allowDiskUse true): "
            '[{$group: {_id: "$_id", n: {$sum: 1}}}, {$match: {n: {$gt: 1}}}].'
        )


def _oplog_warnings(options: StartOptions, found: Findings, estimates: Estimates) -> Iterator[str]:
    """Yield a warning if the source's oplog cannot be read, or if it may be too short and the event spool is off."""
    window, copy = estimates.oplog_window_seconds, estimates.copy_seconds
    spooled = options.event_spool is not EventSpool.NEVER
    if found.source.is_sharded:
        yield (
            "The oplogs of the source's shards cannot be read through mongos, so it is unknown whether they are long "
            "enough. If a shard drops entries before the sync has read them, the sync fails. Check before the start "
            "(rs.printReplicationInfo()) that each shard keeps at least two hours of changes; if eventSpool is never, "
            "each shard must keep all changes that are made during the copy."
        )
    elif found.oplog is None:
        yield (
            "The user of the source may not read its oplog, so it is unknown whether the oplog is long enough. If "
            "the oplog drops entries before the sync has read them, the sync fails: grant the user the built-in role "
            "clusterMonitor, and request a preflight again."
        )
    elif not spooled and window is not None and copy is not None and window < copy:
        yield (
            f"The copy may take {in_words(copy)}, but the oplog of the source ({_shown(found.oplog.limit)}) keeps "
            f"entries for {in_words(window)} at its average write rate. If the oplog drops entries before the sync has "
            "read them, the sync fails: set eventSpool to auto, or enlarge the oplog on each member "
            "(replSetResizeOplog) before the start."
        )
