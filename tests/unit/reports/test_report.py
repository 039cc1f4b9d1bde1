"""Tests the report of a sync: what happened, who requested it, what is unknown, and that its page escapes all names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.limits import Limit, Limits
from syncsvc.options import StartOptions, WriteBlocking
from syncsvc.reports.past import Outcome, commits, idle_spans, phase_spans
from syncsvc.reports.rendering import PAGE
from syncsvc.reports.report import Subject, report
from syncsvc.reports.report_schemas import ReportAnswer
from syncsvc.saved.evidence import MOST_VIEWS, Evidence
from syncsvc.saved.journal import (
    MOST_DIRECTIONS,
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
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import Failure, PhaseBegin, RunRecord
from syncsvc.saved.run_journal import with_changes
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import collection_record, known, run_record
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import MismatchCounts
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, StoredMismatch
from verifier.page.report_page import HEADERS

HOSTILE = "<img src=x onerror=alert(1)>\u202e{{7*7}}"
ALICE = Sender("alice", "10.0.0.9")
SITES = (
    Site("cluster0", "a.example:27017", "replica set", "6.0.5"),
    Site("cluster1", "b.example:27017", "sharded cluster", "7.0.2", 2),
)
VERIFIED = Verified(230.0, 300.0, 3, 1_000, 80_000, 1, 7, ("A note.",))


def state(at: float, new: State) -> Entry:
    return Entry(Kind.STATE, at, new.value)


def command(at: float, name: str) -> Entry:
    return Entry(Kind.COMMAND, at, name, ALICE)


ENTRIES = (
    *(command(100.0, "start"), state(100.0, State.RUNNING)),
    *(command(120.0, "pause"), state(120.0, State.PAUSED)),
    *(command(150.0, "resume"), state(150.0, State.RUNNING)),
    *(command(300.0, "commit"), state(300.0, State.COMMITTING)),
    Entry(Kind.FAILURE, 301.0, f"VerificationFailed: {HOSTILE}"),
    state(301.0, State.FAILED),
    *(command(310.0, "resume"), state(310.0, State.RUNNING)),
    *(command(320.0, "commit"), state(320.0, State.COMMITTING)),
    Entry(Kind.WITHDRAWN, 321.0),
    *(Entry(Kind.WRITABLE, 323.5), state(326.0, State.COMMITTED)),
)
JOURNAL = Journal(
    SITES,
    (Process(100.0, "0.1.0", "h1"), Process(210.0, "0.2.0", "h2", 10.0)),
    ENTRIES,
    warnings=(Warned("oplog short", HOSTILE, 130.0, 130.0, 140.0, 1, 10.0),),
    counts=Counts(5_000, 3, 0),
    verified=VERIFIED,
    saved_at=326.0,
)
PHASES = (
    PhaseBegin(Phase.INITIALIZING, 100.0),
    PhaseBegin(Phase.COPYING, 110.0),
    PhaseBegin(Phase.APPLYING, 220.0),
    PhaseBegin(Phase.CUTTING_OVER, 322.0),
    PhaseBegin(Phase.DONE, 326.0),
)
COMMITTED = run_record(
    state=State.COMMITTED,
    phase=Phase.DONE,
    phases=PHASES,
    can_write=True,
    steps=("definitions prepared",),
    journal=JOURNAL,
)


def subject(
    record: RunRecord = COMMITTED, evidence: Evidence = Evidence(), **fields: Any
) -> Subject:
    orders = collection_record(
        namespace=Namespace("shop", HOSTILE), status=CopyStatus.DONE, copied=80_000, documents=1_000
    )
    sync = known(record, ProgressSnapshot(), collections=(orders,))
    usual: dict[str, Any] = {"version": "0.2.0", "host": "h2", "now": 1_000.0}
    return Subject(sync, evidence, SITES, Limits(), **{**usual, **fields})


@pytest.mark.parametrize(
    "blocking, expected",
    [
        (WriteBlocking.NONE, ["definitions prepared", "reversal prepared"]),
        (
            WriteBlocking.DESTINATION_ONLY,
            ["definitions prepared", "reversal prepared", "destination unblocked"],
        ),
    ],
)
def test_only_steps_with_an_effect_are_named(blocking: WriteBlocking, expected: list[str]) -> None:
    steps = (
        *("definitions prepared", "indexes of earlier versions built"),
        *("way back prepared", "destination unblocked"),
    )
    options = StartOptions("cluster0", "cluster1", write_blocking=blocking)
    found = report(subject(replace(COMMITTED, steps=steps, options=options)))
    assert found["verification"]["cutOverSteps"] == expected


def test_a_committed_sync() -> None:
    found = report(subject())
    assert ReportAnswer().validate({"success": True, "report": found}) == {}
    assert found["headline"]["level"] == "good"
    first, second = found["commits"]
    assert (first["outcome"], first["downtimeSeconds"]) == ("failed", None)
    assert (second["outcome"], second["downtimeSeconds"], second["withdrawn"]) == (
        "committed",
        3.5,
        1,
    )
    assert (second["caller"], second["address"]) == ("alice", "10.0.0.9")
    assert second["committed"] == "1970-01-01T00:05:26Z"
    # The pause of 30 seconds and the 10 seconds without a process do not count.
    assert found["copy"]["seconds"] == 70.0
    assert found["copy"]["bytesPerSecond"] == 1_142.9
    assert found["events"]["seconds"] == 93.0
    assert found["verification"]["outcome"] == "passed"
    assert (found["verification"]["documents"], found["verification"]["rechecked"]) == (1_000, 7)
    assert "A note." in found["verification"]["notCompared"]
    assert [each["text"] for each in found["failures"]] == [f"VerificationFailed: {HOSTILE}"]
    assert found["warnings"][0]["seconds"] == 10.0
    assert [each["version"] for each in found["instances"][0]["processes"]] == ["0.1.0", "0.2.0"]
    assert found["timeline"] == sorted(found["timeline"], key=lambda each: each["at"])


def test_idle_times_are_known_until_now() -> None:
    record = replace(COMMITTED, state=State.FAILED, phases=PHASES[:3])
    journal = replace(JOURNAL, entries=ENTRIES[:10], processes=JOURNAL.processes[:1])
    assert idle_spans(journal, 400.0) == [(120.0, 150.0), (301.0, 400.0)]
    spans = phase_spans(replace(record, journal=journal), 400.0)
    assert [(each.seconds, each.idle) for each in spans] == [
        (10.0, 0.0),
        (110.0, 30.0),
        (180.0, 99.0),
    ]


def test_overlapping_idle_times_count_once() -> None:
    journal = replace(
        JOURNAL,
        entries=(state(10.0, State.PAUSED), state(30.0, State.RUNNING)),
        processes=(Process(1.0, "0.1.0", "h"), Process(35.0, "0.1.0", "h", 15.0)),
    )
    assert idle_spans(journal, 99.0) == [(10.0, 35.0)]


def test_a_commit_that_a_reset_ends() -> None:
    journal = Journal(entries=(command(1.0, "commit"), state(2.0, State.RESETTING)))
    assert [each.outcome for each in commits(run_record(journal=journal))] == [Outcome.RESET]


def test_a_reset_does_not_give_up_a_commit_that_a_resume_has_withdrawn() -> None:
    states = (State.COMMITTING, State.FAILED, State.RUNNING)
    entries = (command(1.0, "commit"), *(state(2.0, each) for each in states))
    withdrawn = Entry(Kind.WITHDRAWN, 2.0)
    journal = Journal(entries=(*entries, withdrawn, state(3.0, State.RESETTING)))
    (found,) = commits(run_record(journal=journal))
    assert (found.outcome, found.withdrawn) == (Outcome.FAILED, 1)
    failed = Journal(entries=(*entries[:-1], state(3.0, State.RESETTING)))
    assert [each.outcome for each in commits(run_record(journal=failed))] == [Outcome.RESET]


def test_a_reversed_sync_keeps_its_first_commit() -> None:
    reversing = replace(COMMITTED, state=State.REVERSING, phase=Phase.REVERSING, reversals=1)
    asked = JOURNAL.with_entries(command(500.0, "reverse"))
    journal = with_changes(COMMITTED, replace(reversing, journal=asked), 500.0)
    found = report(subject(replace(reversing, can_write=False, journal=journal)))
    assert ReportAnswer().validate({"success": True, "report": found}) == {}
    assert found["headline"]["text"].startswith("The sync was committed, and then reversed")
    (direction,) = found["directions"]
    assert (direction["source"], direction["destination"]) == ("cluster0", "cluster1")
    assert direction["verification"]["documents"] == 1_000
    assert direction["eventsApplied"] == 5_000
    assert found["commits"][1]["destination"] == "cluster1"
    assert found["verification"]["outcome"] == "not started"
    assert (found["sync"]["source"], found["sync"]["destination"]) == ("cluster1", "cluster0")


def test_the_directions_stay_right_after_many_reversals() -> None:
    """Reverse a sync so often that the journal drops the first directions: the report must not mix up the clusters."""
    record = run_record(journal=Journal())
    for number in range(MOST_DIRECTIONS + 4):
        at = 10.0 * number
        journal = record.journal.with_entries(command(at, "commit"), command(at + 1, "reverse"))
        counts = Counts(record.journal.counts.events + 100 + number)
        changed = replace(record, reversals=number + 1, journal=replace(journal, counts=counts))
        before = replace(record, journal=changed.journal)
        record = replace(changed, journal=with_changes(before, changed, at + 1))
    reversals = record.reversals
    found = report(subject(record))
    sources = [each["source"] for each in found["commits"]]
    assert sources == [f"cluster{number % 2}" for number in range(reversals)]
    assert [each["source"] for each in found["directions"]] == sources[-20:]
    events = [each["eventsApplied"] for each in found["directions"]]
    assert events == [100 + number for number in range(reversals - 20, reversals)]


def test_all_instances_are_reported() -> None:
    names = ("coordinator", "b")
    leader = replace(COMMITTED, instances=names)
    failure = Failure("DuplicateIds", "Why.")
    journal = with_changes(leader, replace(leader, journal=Journal(), failure=failure), 305.0)
    own = replace(leader, instance="b", journal=replace(journal, counts=Counts(7, 0, 0)))
    found = report(subject(own, Evidence(others=(leader,))))
    assert [each["name"] for each in found["instances"]] == ["coordinator", "b"]
    assert found["events"]["applied"] == 5_007
    assert [each["instance"] for each in found["failures"]] == ["coordinator", "b"]
    assert any("coordinator has the latest numbers" in each for each in found["notKnown"])
    alone = report(subject(own))
    assert any("coordinator was not read" in each for each in alone["notKnown"])


@pytest.mark.parametrize(
    "record, level, words",
    [
        (
            replace(COMMITTED, options=StartOptions("cluster0", "cluster1", verification=False)),
            "warning",
            "disabled",
        ),
        (replace(COMMITTED, journal=Journal()), "warning", "no longer known"),
        (run_record(state=State.RUNNING), "info", "preliminary"),
        (
            run_record(state=State.FAILED, failure=Failure("DuplicateIds", "Why.")),
            "bad",
            "DuplicateIds",
        ),
    ],
)
def test_the_headline_promises_no_more_than_is_known(
    record: RunRecord, level: str, words: str
) -> None:
    found = report(subject(record))
    assert ReportAnswer().validate({"success": True, "report": found}) == {}
    assert found["headline"]["level"] == level and words in found["headline"]["text"]
    PAGE.html(found)


def test_a_sync_of_an_earlier_version_says_what_is_missing() -> None:
    found = report(subject(replace(COMMITTED, phases=(), journal=Journal())))
    assert any("An earlier version of syncsvc" in each for each in found["notKnown"])
    assert (found["sync"]["started"], found["phases"], found["commits"]) == (None, [], [])
    # The report shows the current versions of the clusters.
    assert [each["version"] for each in found["clusters"]] == ["6.0.5", "7.0.2"]


def test_what_could_not_be_read_is_named() -> None:
    found = report(subject(evidence=Evidence(unread=("The list of repairs could not be read: x",))))
    assert found["notKnown"][0] == "The list of repairs could not be read: x"


def test_unread_results_of_the_verification_are_not_known() -> None:
    evidence = Evidence(unread=("The results of the verification could not be read: x",))
    running = run_record(state=State.RUNNING)
    assert report(subject(running, evidence))["verification"]["outcome"] == "not started"
    found = report(subject(running, replace(evidence, is_check_read=False)))
    assert found["verification"]["outcome"] == "not known"


@pytest.mark.parametrize(
    "record, text",
    [
        (COMMITTED, "0 definitions or numbers of documents differed."),
        (replace(COMMITTED, journal=Journal()), "the verification has no known result."),
        (run_record(), "the verification has not begun."),
        (
            run_record(options=StartOptions("cluster0", "cluster1", verification=False)),
            "the verification was disabled.",
        ),
    ],
)
def test_the_page_counts_differences_only_after_a_comparison(record: RunRecord, text: str) -> None:
    assert text in PAGE.html(report(subject(record)))


def test_a_gap_belongs_to_one_of_several_instances() -> None:
    def gap(record: RunRecord) -> list[str]:
        shown = report(subject(record))["timeline"]
        return [each["text"].split(", ")[1] for each in shown if " s in which" in each["text"]]

    assert gap(COMMITTED) == ["after 10 s in which no process ran the sync"]
    several = replace(COMMITTED, instances=("coordinator", "b"))
    assert gap(several) == ["after 10 s in which no process ran the instance coordinator"]


def test_the_page_escapes_everything() -> None:
    mismatch = DefinitionMismatch(Namespace("d", HOSTILE), Difference.EXTRA, Aspect.EXISTENCE)
    stored = StoredMismatch(mismatch, 1, 1.0, 2.0, "p")
    counts = MismatchCounts(definitions=1)
    evidence = Evidence(views=(HOSTILE,), counts=counts, mismatches=(stored,), repaired=(stored,))
    options = StartOptions("cluster0", "cluster1", include_namespaces=({"database": HOSTILE},))
    html = PAGE.html(report(subject(replace(COMMITTED, options=options), evidence)))
    assert "<img" not in html and "\u202e" not in html
    assert "49" not in re.sub(
        r"[^{]{2}7\*7", "", html.partition("</style>")[2].partition("Timeline")[0]
    )
    assert html.count("&lt;img src=x onerror=alert(1)&gt;\\u202e{{7*7}}") >= 6
    assert "<script" not in html and "http://" not in html and "https://" not in html


def test_the_page_needs_nothing_else_and_allows_only_its_style() -> None:
    html = PAGE.html(report(subject()))
    assert not re.search(r"<[^>]*\b(src|href)=", html)
    assert " style=" not in html
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_limits_are_shown() -> None:
    found = report(replace(subject(), limits=Limits({Limit.EVENTS: 700})))
    assert found["limits"]["eventsPerSecond"] == 700
    assert "<code>700</code>" in PAGE.html(found)


@pytest.mark.parametrize(
    "shard_key, sharded",
    [(None, False), ({}, False), ({"key": {"n": 1}, "unique": False}, True)],
)
def test_a_collection_without_a_shard_key_is_unsharded(
    shard_key: dict[str, Any] | None, sharded: bool
) -> None:
    listed = collection_record()
    listed = replace(listed, definition=replace(listed.definition, shard_key=shard_key))
    found = subject()
    found = replace(found, sync=known(COMMITTED, ProgressSnapshot(), collections=(listed,)))
    (collection,) = report(found)["namespaces"]["collections"]
    assert collection["sharded"] is sharded


def test_the_page_shows_the_new_name_of_a_renamed_collection() -> None:
    remap = ({"from": {"database": "shop"}, "to": {"database": "store"}},)
    options = StartOptions("cluster0", "cluster1", namespace_remap=remap)
    text = "(store.&lt;img"
    assert text in PAGE.html(report(subject(replace(COMMITTED, options=options))))
    assert text not in PAGE.html(report(subject()))


def test_missing_views_are_named() -> None:
    views = tuple(f"d.v{number}" for number in range(MOST_VIEWS))
    cut = report(subject(COMMITTED, Evidence(views=views)))["notKnown"]
    assert "At most 10,000 views are listed and counted." in cut
    whole = report(subject(COMMITTED, Evidence(views=views[1:])))["notKnown"]
    assert not any("views" in each for each in whole)
