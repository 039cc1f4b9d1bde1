"""The answer to `GET /api/v1/report`: what was synced, when, by whom, and what was verified.

The report is for people who did not run the sync, such as managers and auditors. So the report also says which facts
are not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from typing import Any

from syncsvc.limits import Limits
from syncsvc.reports.namespaces import renamed_to
from syncsvc.reports.past import Commit, PhaseSpan, commits, phase_spans, timeline
from syncsvc.reports.sync import Sync
from syncsvc.reports.verification_answer import mismatches_of, namespace_compared
from syncsvc.resuming import UNBLOCKED
from syncsvc.saved.evidence import MOST_LISTED, MOST_VIEWS, Evidence
from syncsvc.saved.journal import MOST_DIRECTIONS, Counts, Kind, Sender, Site, Verified, Warned
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import RunRecord
from syncsvc.saved.stored import StoredOptions
from syncsvc.state import Phase, State
from verifier.compare.check_progress import Amounts, CheckProgress
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.record import CheckRecord
from verifier.page.report_page import COUNTED, PROXIES, UNKNOWN_CALLERS, Level, moment, rate

MOST_NAMESPACES = 10_000
_MOST_DIRECTIONS = MOST_DIRECTIONS - 1
_METHOD = (
    "Every selected document is read on both clusters, in ranges of _id, and compared byte by byte, including the "
    "order of its fields.",
    COUNTED,
    "The definitions of all collections and views are compared, with all options and indexes, and with the shard keys "
    "if the destination is sharded. Options that are only restored in the last steps of the cut-over, such as "
    "uniqueness, are compared in their temporary form.",
    "Everything on the destination is compared with the part of the source that the sync selects. So an additional "
    "collection or document on the destination is a difference. With preExistingDestinationData, collections on the "
    "destination that the sync did not create are ignored.",
    "Documents that change or differ are compared again, until the last change before the commit.",
)
_NOT_COMPARED = (
    'Collections with names that begin with "system." are not compared, except the buckets of time-series collections. '
    "Users and roles are not compared, except those that the commit copies.",
    "Orphaned documents and the distribution of chunks on shards are not compared.",
    "The last steps of the cut-over restore uniqueness, expiration and other options after the comparison. The servers "
    "acknowledge each of these steps, but the results are not compared.",
    "Writes to either cluster after the commit are not compared.",
)


# The words of the report for steps of the cut-over whose saved names are unclear; None for a step that matters only to
# a sync that an earlier version of syncsvc began.
_STEPS = {
    "way back prepared": "reversal prepared",
    "balancers put back": "balancers started again where they were on before",
    "indexes of earlier versions built": None,
}


@dataclass(frozen=True)
class Subject:
    """The input of a report. `sync` must have a record. `sites` are the clusters as this process knows them.

    `now` is in UNIX seconds. `version` and `host` are the version and the host of this process.
    """

    sync: Sync
    evidence: Evidence
    sites: tuple[Site, ...]
    limits: Limits
    version: str
    host: str
    now: float

    @property
    def own(self) -> RunRecord:
        assert self.sync.record is not None
        return self.sync.record

    @property
    def records(self) -> list[RunRecord]:
        """Return the known records of all instances, first the record of the coordinator."""
        found = (self.own, *self.evidence.others)
        return sorted(found, key=lambda each: (not each.coordinates, each.instance))

    @property
    def leader(self) -> RunRecord:
        """Return the record of the coordinator; if it is unknown, the record of this instance."""
        return next((each for each in self.records if each.coordinates), self.own)


def report(subject: Subject) -> dict[str, Any]:
    """Return the field `report` of the answer to `GET /api/v1/report`."""
    leader = subject.leader
    spans, asked = phase_spans(leader, subject.now), commits(leader)
    verification = _verification(subject)
    level, text = _headline(subject, verification)
    return {
        "created": {
            "at": moment(subject.now),
            "version": subject.version,
            "host": subject.host,
            "instance": subject.own.instance,
        },
        "headline": {"level": level.value, "text": text},
        "sync": _sync(leader, spans),
        "clusters": [*_clusters(subject)],
        "options": StoredOptions().dump(leader.options),
        "instances": [_instance(each) for each in subject.records],
        "phases": [_phase(each) for each in spans],
        "copy": _copy(subject, spans),
        "events": _events(subject, spans),
        "commits": [_commit(each, leader) for each in asked],
        "directions": [*_directions(subject)],
        "verification": verification,
        "differences": _differences(subject),
        "repairs": _repairs(subject),
        "failures": [*_failures(subject)],
        "warnings": [*_warnings(subject)],
        "limits": subject.limits.shown(),
        "namespaces": _namespaces(subject),
        "timeline": [
            {"at": moment(each.at), **_sent(each.sender)}
            | {"instance": each.instance, "what": each.what, "text": each.text}
            for each in timeline(subject.records)
        ],
        "notKnown": [*_not_known(subject)],
    }


def _headline(subject: Subject, verification: Mapping[str, Any]) -> tuple[Level, str]:
    record, outcome = subject.leader, verification["outcome"]
    if record.state is State.FAILED:
        name = "an unknown error" if record.failure is None else record.failure.name
        return Level.BAD, f"The sync has failed with {name}. This report is preliminary."
    if record.state is not State.COMMITTED and record.reversals:
        return (
            Level.INFO,
            f"The sync was committed, and then reversed; its state is {record.state.value}. "
            "This report is preliminary.",
        )
    if record.state is not State.COMMITTED:
        state = record.state.value
        return (
            Level.INFO,
            f"The sync is not committed: its state is {state}. This report is preliminary.",
        )
    if outcome == _Result.PASSED.value:
        return (
            Level.GOOD,
            "The sync is committed. At the commit, everything that was compared was equal on both clusters.",
        )
    if outcome == _Result.DISABLED.value:
        return (
            Level.WARNING,
            "The sync is committed, but nothing was compared: the verification was disabled.",
        )
    return (
        Level.WARNING,
        "The sync is committed. The result of its verification is no longer known.",
    )


def _sync(record: RunRecord, spans: list[PhaseSpan]) -> dict[str, Any]:
    failure = record.failure
    return {
        "state": record.state.value,
        "phase": record.phase.value,
        "source": record.source,
        "destination": record.destination,
        "reversals": record.reversals,
        "canWrite": record.can_write,
        "started": moment(_started(record)),
        "seconds": round(sum(each.seconds for each in spans), 1) if spans else None,
        "error": None if failure is None else failure.name,
        "errorDescription": None if failure is None else failure.description,
    }


def _started(record: RunRecord) -> float | None:
    if record.journal.processes:
        return record.journal.processes[0].at
    return record.phases[0].at if record.phases else None


def _clusters(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield both clusters as they were at the start, the source first; unknown clusters are left out.

    If an older version began the sync, yield the clusters as they are known to this process instead. `versionNow` is
    the version when this process connected to the cluster.
    """
    record = subject.leader
    then = {each.name: each for each in record.journal.sites}
    names = (record.options.source, record.options.destination)
    for name, identity, role in zip(
        names, record.identities, ("source", "destination"), strict=True
    ):
        now = next((each for each in subject.sites if each.name == name), None)
        known = then.get(name, now)
        if known is not None:
            yield {
                "name": name,
                "role": role,
                "address": known.address,
                "topology": known.topology,
                "shards": known.shards,
                "version": known.version,
                "versionNow": None if now is None else now.version,
                "identity": identity,
            }


def _instance(record: RunRecord) -> dict[str, Any]:
    return {
        "name": record.instance,
        "coordinates": record.coordinates,
        "state": record.state.value,
        "processes": [
            {
                "began": moment(each.at),
                "version": each.version,
                "host": each.host,
                "gapSeconds": None if each.gap is None else round(each.gap, 1),
            }
            for each in record.journal.processes
        ],
    }


def _phase(span: PhaseSpan) -> dict[str, Any]:
    return {
        "phase": span.phase.value,
        "began": moment(span.began),
        "ended": moment(span.ended),
        "seconds": round(span.seconds, 1),
        "idleSeconds": round(span.idle, 1),
    }


def _copy(subject: Subject, spans: list[PhaseSpan]) -> dict[str, Any]:
    collections = subject.sync.collections
    documents = sum(each.documents for each in collections)
    size = sum(each.copied for each in collections)
    seconds = sum(each.active for each in spans if each.phase is Phase.COPYING)
    return {
        "collections": len(collections),
        "views": len(subject.evidence.views),
        "indexes": sum(len(each.definition.indexes) for each in collections),
        "documents": documents,
        "bytes": size,
        "seconds": round(seconds, 1),
        "documentsPerSecond": rate(documents, seconds),
        "bytesPerSecond": rate(size, seconds),
        "documentsCopiedAgain": _total(subject).copied_again,
    }


def _total(subject: Subject) -> Counts:
    """Return the numbers of change events, DDL events and documents copied again, summed over all instances."""
    return reduce(Counts.plus, (each.journal.counts for each in subject.records), Counts())


def _events(subject: Subject, spans: list[PhaseSpan]) -> dict[str, Any]:
    total = _total(subject)
    seconds = sum(each.active for each in spans if each.phase is Phase.APPLYING)
    return {
        "applied": total.events,
        "definitionsApplied": total.definitions,
        "seconds": round(seconds, 1),
        "appliedPerSecond": rate(total.events, seconds),
    }


def _commit(commit: Commit, record: RunRecord) -> dict[str, Any]:
    names = (record.options.source, record.options.destination)
    source, destination = names if commit.direction % 2 == 0 else reversed(names)
    downtime = commit.downtime
    return {
        "requested": moment(commit.requested),
        **_sent(commit.sender),
        "source": source,
        "destination": destination,
        "outcome": commit.outcome.value,
        "withdrawn": commit.withdrawn,
        "writable": moment(commit.writable),
        "committed": moment(commit.committed),
        "downtimeSeconds": None if downtime is None else round(downtime, 1),
    }


def _sent(sender: Sender | None) -> dict[str, str | None]:
    return {
        "caller": None if sender is None else sender.caller,
        "address": None if sender is None else sender.address,
    }


def _directions(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield the earlier directions of the sync, each of which ended with a reversal; the oldest first.

    Yield at most the last `_MOST_DIRECTIONS` directions: to count the events of one, the previous one must be known.
    """
    record = subject.leader
    directions = record.journal.directions[-_MOST_DIRECTIONS:]
    for number, direction in enumerate(directions, record.reversals - len(directions)):
        verified = direction.verified
        yield {
            "source": direction.source,
            "destination": direction.destination,
            "ended": moment(direction.ended),
            "eventsApplied": _counts_of(subject, number).events,
            "verification": None if verified is None else _amounts_of(verified),
            "repairedDocuments": direction.repaired_documents,
            "repairedDefinitions": direction.repaired_definitions,
        }


def _counts_of(subject: Subject, number: int) -> Counts:
    """Return the counts of change events and DDL events in one direction of the sync, summed over all instances.

    The counts also contain the documents copied again. `number` is the index of the direction in the journals.
    """
    return reduce(
        Counts.plus,
        (_in_direction(each, number) for each in subject.records),
        Counts(),
    )


def _in_direction(record: RunRecord, number: int) -> Counts:
    directions = record.journal.directions
    index = number - (record.reversals - len(directions))
    if not 0 <= index < len(directions):
        return Counts()
    earlier = directions[index - 1].counts if index else Counts()
    return directions[index].counts.since(earlier)


class _Result(Enum):
    """The results of a verification, as the report shows them."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    RUNNING = "not finished"
    NOT_STARTED = "not started"
    DISABLED = "disabled"
    UNKNOWN = "not known"


RESULTS = tuple(each.value for each in _Result)


def _verification(subject: Subject) -> dict[str, Any]:
    record, check = subject.leader, subject.evidence.check
    verified = record.journal.verified if record.state is State.COMMITTED else None
    found = _Found(_Result.PASSED, verified) if verified else _of_check(subject, check)
    result = _Result.DISABLED if not record.options.verification else found.result
    compared = result not in (_Result.DISABLED, _Result.NOT_STARTED, _Result.UNKNOWN)
    return {
        "outcome": result.value,
        **_amounts_of(found.amounts),
        "reasons": list(found.reasons),
        "method": list(_METHOD) if compared else [],
        "notCompared": [*_NOT_COMPARED, *found.amounts.notes] if compared else [],
        "cutOverSteps": list(_cut_over_steps(record)),
    }


def _cut_over_steps(record: RunRecord) -> Iterator[str]:
    """Yield the complete steps of the cut-over in the words of the report, without steps that had no effect."""
    for step in record.steps:
        if step != UNBLOCKED or record.options.blocks_destination:
            if (words := _STEPS.get(step, step)) is not None:
                yield words


@dataclass(frozen=True)
class _Found:
    result: _Result
    amounts: Verified
    reasons: tuple[str, ...] = ()


_NOTHING = _Found(_Result.NOT_STARTED, Verified(0.0, None, 0, 0, 0, 0, 0))


def _of_check(subject: Subject, check: CheckRecord | None) -> _Found:
    """Return the results of the newest check so far; it may still be running. `check` is None if none is known."""
    if check is None:
        is_lost = subject.leader.state is State.COMMITTED or not subject.evidence.is_check_read
        return replace(_NOTHING, result=_Result.UNKNOWN) if is_lost else _NOTHING
    live = subject.sync.snapshot.check or CheckProgress()
    first = check.first or live.first or (live.amounts if not check.generation else Amounts())
    amounts = Verified(
        check.started,
        check.ended,
        check.generation + 1,
        first.documents,
        first.size,
        first.namespaces,
        check.rechecked,
        check.notes,
    )
    if check.verdict is None:
        return _Found(_Result.RUNNING, amounts)
    return _Found(_Result(check.verdict.outcome.value), amounts, check.verdict.reasons)


def _amounts_of(verified: Verified) -> dict[str, Any]:
    begun = verified.generations > 0
    return {
        "started": moment(verified.started) if begun else None,
        "ended": moment(verified.ended),
        "generations": verified.generations,
        "documents": verified.documents,
        "bytes": verified.size,
        "collections": verified.namespaces,
        "rechecked": verified.rechecked,
        "notes": list(verified.notes),
    }


def _differences(subject: Subject) -> dict[str, Any]:
    evidence = subject.evidence
    return {
        "documents": sum(evidence.counts.documents.values()),
        "definitions": evidence.counts.definitions,
        "listed": _texts(evidence.mismatches),
    }


def _texts(found: Iterable[StoredMismatch]) -> list[str]:
    return [str(each.mismatch) for each in found]


def _repairs(subject: Subject) -> dict[str, Any]:
    record = subject.leader
    return {
        "requested": record.repair_requests,
        "inCommit": record.commit_repairs,
        "documents": record.repaired_documents,
        "definitions": record.repaired_definitions,
        "listed": _texts(subject.evidence.repaired),
    }


def _failures(subject: Subject) -> Iterator[dict[str, Any]]:
    for each in timeline(subject.records):
        if each.what == Kind.FAILURE.value:
            yield {"at": moment(each.at), "instance": each.instance, "text": each.text}


def _warnings(subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield the active and the ended warnings of all instances, the oldest first."""
    found = [
        (each, record.instance) for record in subject.records for each in record.journal.warnings
    ]
    for warned, instance in sorted(found, key=lambda each: each[0].first):
        yield {
            "instance": instance,
            "text": warned.text,
            "first": moment(warned.first),
            "last": moment(warned.began),
            "ended": moment(warned.ended),
            "times": warned.times,
            "seconds": round(_duration(warned, subject.now), 1),
        }


def _duration(warned: Warned, now: float) -> float:
    newest = 0.0 if warned.ended is not None else max(0.0, now - warned.began)
    return warned.seconds + newest


def _namespaces(subject: Subject) -> dict[str, Any]:
    sync = subject.sync
    ordered = sorted(sync.collections, key=lambda each: str(each.source_name))
    return {
        "total": len(ordered),
        "collections": [_collection(sync, each) for each in ordered[:MOST_NAMESPACES]],
        "views": list(subject.evidence.views),
    }


def _collection(sync: Sync, record: CollectionRecord) -> dict[str, Any]:
    check = sync.snapshot.check
    compared = None if check is None else namespace_compared(check, record)
    return {
        "namespace": str(record.source_name),
        **renamed_to(sync, record),
        "documents": record.documents,
        "bytes": record.copied,
        "indexes": len(record.definition.indexes),
        "sharded": record.definition.sharded,
        "comparedDocuments": None if compared is None else compared.documents,
        "differences": None if check is None else mismatches_of(check, record),
    }


def _not_known(subject: Subject) -> Iterator[str]:
    """Yield a sentence for each fact that the report cannot contain because it is not known."""
    record, evidence = subject.leader, subject.evidence
    journal = record.journal
    yield from evidence.unread
    if not record.coordinates:
        yield (
            f"The record of the coordinator {record.coordinator} was not read: request the report of the coordinator, "
            "too."
        )
    elif not subject.own.coordinates:
        yield (
            f"The numbers for single collections may be out of date: the coordinator {record.coordinator} has the "
            "latest numbers."
        )
    if not journal.sites:
        yield (
            "An earlier version of syncsvc, which kept no journal, began the sync: commands, failures, warnings and "
            "versions from before the update are missing."
        )
    if omitted := sum(each.journal.omitted for each in subject.records):
        yield f"The journal was full, so entries are missing: {omitted} in all instances together."
    if any(each.caller is None for each in _senders(record)):
        yield UNKNOWN_CALLERS
    yield PROXIES
    yield "It is not known when applications stopped writing to the source, and began to write to the destination."
    yield (
        "The numbers of change events are approximate after a crash: events of a few seconds may be counted twice or "
        "not at all. Collections that were dropped on the source during the sync are not listed."
    )
    if record.options.verification and subject.sync.snapshot.check is None:
        yield (
            "It is not known how many documents of each collection were compared, if any: only the process that "
            "compares the documents has these numbers."
        )
    if len(subject.sync.collections) > MOST_NAMESPACES:
        yield f"Only the first {MOST_NAMESPACES:,} collections are listed."
    if len(evidence.views) == MOST_VIEWS:
        yield f"At most {MOST_VIEWS:,} views are listed and counted."
    if _is_cut(evidence):
        yield f"At most {MOST_LISTED} differences and {MOST_LISTED} repaired differences are listed."


def _senders(record: RunRecord) -> list[Sender]:
    return [each.sender for each in record.journal.entries if each.sender is not None]


def _is_cut(evidence: Evidence) -> bool:
    return MOST_LISTED in (len(evidence.mismatches), len(evidence.repaired))
