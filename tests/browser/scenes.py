"""Sample states of a sync for the browser tests, which check the page in these states."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic, time
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.figures.collections import CollectionFigures
from syncsvc.figures.progress import (
    CopiedAmount,
    OtherInstance,
    ProgressSnapshot,
    SpoolFigures,
    WarningKind,
)
from syncsvc.options import StartOptions
from syncsvc.reports.standing import Role, Standing
from syncsvc.reports.sync import Sync
from syncsvc.saved.journal import (
    Counts,
    Entry,
    Journal,
    Kind,
    Process,
    Sender,
    Site,
    Verified,
    Warned,
)
from syncsvc.saved.lease import Lease
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.saved.run import Failure, PhaseBegin, RunRecord
from syncsvc.state import Phase, State
from tests.browser.stage import PINGS
from tests.unit.syncsvc.records import collection_record, run_record
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import (
    Amounts,
    Changes,
    CheckProgress,
    MismatchCounts,
    NamespaceProgress,
    Outcome,
    Verdict,
)
from verifier.compare.check_progress import Phase as CheckPhase
from verifier.compare.mismatch import Difference
from verifier.runtime.waits import LongWait

HOSTILE = "<img src=x onerror=alert(1)>"
_INDEX = {"name": "a_1", "key": {"a": 1}}


def collections(number: int, done: int) -> tuple[CollectionRecord, ...]:
    """Return `number` collections, of which the first `done` are copied and the next two are being copied."""
    return tuple(_collection(n, done) for n in range(number))


def _collection(number: int, done: int) -> CollectionRecord:
    name = HOSTILE if number == 3 else f"orders_{number:05}"
    total, documents = 1_600_000_000 * (1 + number % 97), 2_040_000 * (1 + number % 97)
    status = CopyStatus.DONE if number < done else CopyStatus.WAITING
    share = 1.0 if number < done else 0.0
    if done <= number < done + 2:
        status, share = CopyStatus.COPYING, 0.37
    return collection_record(
        {},
        _INDEX,
        uuid=number.to_bytes(16, "big"),
        namespace=Namespace(f"shop{number % 7}", name),
        status=status,
        total=total,
        total_documents=documents,
        copied=int(share * total),
        documents=int(share * documents),
    )


def _phases(*durations: tuple[Phase, float]) -> tuple[PhaseBegin, ...]:
    """Return a PhaseBegin for each phase. Each phase lasted the given number of seconds; the last one ends now."""
    at = time() - sum(seconds for _, seconds in durations)
    begins = []
    for phase, seconds in durations:
        begins.append(PhaseBegin(phase, at))
        at += seconds
    return tuple(begins)


_COPIED = ((Phase.INITIALIZING, 4.2), (Phase.COPYING, 5_080.0))
_PAST = Timestamp(int(time()) - 600, 1)


def _record(**fields: Any) -> RunRecord:
    usual: dict[str, Any] = {
        "phase": Phase.APPLYING,
        "phases": _phases(*_COPIED, (Phase.APPLYING, 760.0)),
        "copy_end": _PAST,
        "position": Position({"_data": "82"}, Timestamp(int(time()), 1)),
        "options": StartOptions("cluster0", "cluster1", reversible=True),
    }
    return run_record(**{**usual, **fields})


def _snapshot(**fields: Any) -> ProgressSnapshot:
    usual: dict[str, Any] = {
        "total_bytes": 480_000_000_000,
        "copied_bytes": 480_000_000_000,
        "copied_documents": 612_400_000,
        "events_read": 1_204_331,
        "events_applied": 1_204_310,
        "definitions_applied": 12,
        "lag_seconds": 1,
        "oplog_seconds_left": 93_000.0,
        "pings": PINGS,
    }
    return ProgressSnapshot(**{**usual, **fields})


def _check(differing: int = 0, **fields: Any) -> CheckProgress:
    names = {Namespace("shop3", HOSTILE): differing} if differing else {}
    changes = Changes(seen={"update": 1200}, per_second=3.0, lag_seconds=0)
    usual: dict[str, Any] = {
        "phase": CheckPhase.RECHECK,
        "generation": 3,
        "started": 1.0,
        "first": Amounts(612_400_000, 612_400_000, 48 * 10**10, 48 * 10**10, 24),
        "rechecked": 1_731,
        "source": changes,
        "destination": changes,
        "mismatches": MismatchCounts({Difference.CONTENT: differing}, names),
        "namespaces": {
            each.source_name: NamespaceProgress(each.documents, each.total_documents)
            for each in collections(24, 24)
        },
    }
    return CheckProgress(**{**usual, **fields})


def _sync(record: RunRecord, snapshot: ProgressSnapshot, **fields: Any) -> Sync:
    usual: dict[str, Any] = {"can_commit": False, "collections": collections(24, 24)}
    return Sync(record.state, record, snapshot, **{**usual, **fields})


def copying(number: int = 24, done: int = 9) -> Sync:
    shown = collections(number, done)
    record = _record(
        phase=Phase.COPYING,
        phases=_phases((Phase.INITIALIZING, 4.2), (Phase.COPYING, 2_301.0)),
        copy_end=None,
    )
    snapshot = _snapshot(
        copied_bytes=171_300_000_000, copied_documents=218_500_000, lag_seconds=None
    )
    began = CollectionFigures(began=monotonic() - 40, documents=120_000, size=96_000_000)
    figures = {shown[n].uuid: began for n in range(done, min(done + 2, number))}
    return _sync(record, snapshot, collections=shown, figures=figures)


def short_of_oplog() -> Sync:
    sync = copying()
    text = (
        "The oplog of the source (51200 MB) is short: the copy takes another 1 hour, but at the current write rate, in "
        "40 minutes the oplog begins to drop entries that this sync needs."
    )
    wait = LongWait("find on destination.example:27017 is not answered", "Check the network.", 33.0)
    snapshot = replace(
        sync.snapshot,
        oplog_seconds_left=2_400.0,
        warnings={WarningKind.OPLOG_SHORT: text},
        waits=(wait,),
    )
    return replace(sync, snapshot=snapshot)


def behind() -> Sync:
    spool = SpoolFigures(True, 3_400_000_000, 20_000_000_000, 4_100, 1_200_000.0)
    return _sync(_record(), _snapshot(lag_seconds=847, spool=spool, check=None))


def ready() -> Sync:
    return _sync(_record(), _snapshot(check=_check(), caught_up=True), can_commit=True)


def differing() -> Sync:
    return _sync(_record(), _snapshot(check=_check(42), caught_up=True), can_commit=True)


def paused() -> Sync:
    return _sync(_record(state=State.PAUSED), _snapshot(check=_check()))


def committing() -> Sync:
    return _sync(
        _record(state=State.COMMITTING, steps=("commit saved",)), _snapshot(check=_check())
    )


def committed() -> Sync:
    phases = _phases(
        *_COPIED, (Phase.APPLYING, 86_000.0), (Phase.CUTTING_OVER, 3.1), (Phase.DONE, 0)
    )
    record = _record(
        state=State.COMMITTED,
        phase=Phase.DONE,
        phases=phases,
        can_write=True,
        steps=("definitions prepared", "source checked", "destination unblocked"),
        commit_repairs=1,
        repaired_documents=3,
        journal=_journal(phases),
    )
    verdict = Verdict(Outcome.PASSED)
    return _sync(record, _snapshot(check=_check(phase=CheckPhase.IDLE, verdict=verdict)))


def _journal(phases: tuple[PhaseBegin, ...]) -> Journal:
    """Return the journal of a sync that bob paused, another process took over, and alice committed."""
    began, copied, end = phases[0].at, phases[2].at, phases[-1].at
    alice, bob = Sender("alice", "10.20.0.7"), Sender("bob", "10.20.0.9")
    pause, crash, asked = copied + 9_000, copied + 40_000, end - 6.3
    entries = (
        Entry(Kind.COMMAND, began, "start", alice),
        Entry(Kind.STATE, began, "RUNNING"),
        Entry(Kind.COMMAND, began + 600, 'limits {"copyBytesPerSecond": 120000000}', bob),
        Entry(Kind.COMMAND, pause, "pause", bob),
        Entry(Kind.STATE, pause, "PAUSED"),
        Entry(Kind.COMMAND, pause + 1_260, "resume", bob),
        Entry(Kind.STATE, pause + 1_260, "RUNNING"),
        Entry(Kind.COMMAND, asked, "commit", alice),
        Entry(Kind.STATE, asked, "COMMITTING"),
        Entry(Kind.REPAIRED, asked + 2, "3 documents, 0 definitions"),
        Entry(Kind.WRITABLE, end - 1.9),
        Entry(Kind.STATE, end, "COMMITTED"),
    )
    short = (
        "The oplog of the source (51200 MB) is short: in 42 minutes it drops changes that the sync still needs. "
        "Enlarge it on each member (replSetResizeOplog)."
    )
    verified = Verified(
        *(copied + 300, asked + 3, 4, 612_400_000, 48 * 10**10, 24, 1_731),
        ("d.sessions: documents expire, so their numbers were not compared.",),
    )
    return Journal(
        sites=(
            Site("cluster0", "source.example:27017", "replica set", "6.0.19"),
            Site("cluster1", "destination.example:27017", "sharded cluster", "7.0.14", 4),
        ),
        processes=(
            Process(began, "0.1.0", "sync-a.example"),
            Process(crash, "0.1.0", "sync-b.example", 6.4),
        ),
        entries=entries,
        warnings=(Warned("oplog short", short, began + 900, began + 900, began + 1_700, 2, 1_130),),
        counts=Counts(1_204_310, 12, 840),
        verified=verified,
        saved_at=end,
    )


def failed() -> Sync:
    text = (
        f"The verification found differences: shop3.{HOSTILE}: the document with _id 7 is different (total: 12 on the "
        "source, 13 on the destination). Read GET /api/v1/mismatches, and repair them with POST /api/v1/repair."
    )
    record = _record(state=State.FAILED, failure=Failure("VerificationFailed", text))
    return _sync(record, _snapshot(check=_check(1)))


def idle() -> Sync:
    return Sync(State.IDLE, None, ProgressSnapshot(pings=PINGS), can_commit=False)


def reversing() -> Sync:
    phases = _phases((Phase.REVERSING, 2.4))
    return _sync(
        _record(state=State.REVERSING, phase=Phase.REVERSING, phases=phases, copy_end=None),
        _snapshot(check=None),
    )


def resetting() -> Sync:
    return _sync(_record(state=State.RESETTING), _snapshot(check=None))


def several() -> Sync:
    sync, now = ready(), monotonic()
    assert sync.record is not None
    others = (
        OtherInstance("worker-1", State.RUNNING, Phase.APPLYING, int(time()), now),
        OtherInstance("worker-2", State.RUNNING, Phase.INDEXING, int(time()) - 90, now - 45),
    )
    record = replace(sync.record, instances=("coordinator", "worker-1", "worker-2"))
    snapshot = replace(
        sync.snapshot,
        others=others,
        caught_up=False,
        copied_bytes=190_000_000_000,
        copied_documents=240_100_000,
        copied_in_all=CopiedAmount(480_000_000_000, 612_400_000),
    )
    lease = _lease()
    standing = Standing(Role.ACTIVE, lease)
    return replace(sync, record=record, snapshot=snapshot, can_commit=False, standing=standing)


def follower() -> Sync:
    """Return the sync as an instance that does not coordinate sees it during the copy."""
    sync = copying()
    assert sync.record is not None
    record = replace(sync.record, instance="worker-1", instances=("coordinator", "worker-1"))
    return replace(sync, record=record)


def standby() -> Sync:
    lease = _lease(
        {
            **{"state": "RUNNING", "canCommit": True, "canWrite": False, "info": None},
            **{"mongosyncID": "coordinator", "error": None, "directionMapping": None},
        }
    )
    return Sync(
        State.RUNNING, None, ProgressSnapshot(pings=PINGS), False, standing=Standing(lease=lease)
    )


def _lease(progress: dict[str, Any] | None = None) -> Lease:
    now = datetime(2026, 3, 14, 9, 30)
    soon = now + timedelta(seconds=6)
    return Lease("9f8e", "sync-a.example", "0.0.0.0:27182", now, soon, progress=progress)


SCENES = {
    each.__name__: each
    for each in (
        *(idle, copying, short_of_oplog, behind, ready, differing, paused, committing, committed),
        *(reversing, failed, resetting, several),
    )
}
