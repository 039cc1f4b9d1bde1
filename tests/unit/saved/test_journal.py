"""The journal of a run stays small, but keeps the entries that a report needs, such as who committed the sync."""

from __future__ import annotations

from dataclasses import replace

from syncsvc.saved.journal import (
    LONGEST_TEXT,
    MOST_ENTRIES,
    MOST_PROCESSES,
    MOST_WARNINGS,
    Counts,
    Entry,
    Journal,
    Kind,
    Process,
    Sender,
    Warned,
)
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.saved.run_journal import with_changes
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import run_record

COMMIT = Entry(Kind.COMMAND, 3.0, "commit", Sender("alice", "127.0.0.1"))


def entries(old: RunRecord, new: RunRecord) -> list[tuple[Kind, str]]:
    return [(each.what, each.text) for each in with_changes(old, new, 5.0).entries]


def test_a_full_journal_keeps_who_committed() -> None:
    noise = (Entry(Kind.STATE, float(n), "PAUSED") for n in range(2 * MOST_ENTRIES))
    journal = Journal().with_entries(Entry(Kind.COMMAND, 0.0, "start"), COMMIT)
    for each in noise:
        journal = journal.with_entries(each)
    assert len(journal.entries) == MOST_ENTRIES
    assert journal.entries[1] == COMMIT
    assert journal.entries[-1].at == 2 * MOST_ENTRIES - 1
    assert journal.omitted == MOST_ENTRIES + 2


def test_a_journal_of_commits_alone_is_bounded_too() -> None:
    journal = Journal().with_entries(*(replace(COMMIT, at=float(n)) for n in range(500)))
    assert [each.at for each in journal.entries] == [float(n) for n in range(300, 500)]


def test_long_texts_are_cut() -> None:
    journal = Journal().with_entries(Entry(Kind.FAILURE, 1.0, "x" * 100_000))
    assert len(journal.entries[0].text) == LONGEST_TEXT
    assert len(journal.with_warnings({"k": "x" * 9_999}, 1.0).warnings[0].text) == LONGEST_TEXT


def test_the_keys_of_warnings_are_cut() -> None:
    """The key that identifies a warning must be shortened: the key of a long wait can quote an error of 16 MB.

    Otherwise the run record could exceed the maximum document size and not be saved.
    """
    error = "A task has failed (" + "x" * 100_000
    journal = Journal().with_warnings({error: "Why."}, 1.0)
    assert len(journal.warnings[0].key) == LONGEST_TEXT
    assert journal.with_warnings({error: "Why."}, 2.0) == journal
    assert journal.with_warnings({}, 3.0).warnings[0].ended == 3.0


def test_active_warnings_are_kept() -> None:
    journal = Journal().with_warnings({"lasting": "x"}, 1.0)
    for n in range(2 * MOST_WARNINGS):
        journal = journal.with_warnings({"lasting": "x", f"short {n}": "x"}, 2.0 + n)
    assert len(journal.warnings) == MOST_WARNINGS
    assert journal.warnings[0] == Warned("lasting", "x", 1.0, 1.0)
    assert journal.warnings[1].key == f"short {MOST_WARNINGS + 1}"


def test_the_process_that_began_the_sync_is_kept() -> None:
    journal = Journal()
    for n in range(3 * MOST_PROCESSES):
        journal = journal.with_process(Process(float(n), "0.1.0", "host"))
    assert len(journal.processes) == MOST_PROCESSES
    assert [journal.processes[n].at for n in (0, 1, -1)] == [0.0, 101.0, 149.0]


def test_a_warning_is_counted_and_timed() -> None:
    journal = Journal().with_warnings({"oplog": "short: 34 minutes"}, 10.0)
    journal = journal.with_warnings({"oplog": "short: 33 minutes"}, 11.0)
    assert journal.warnings == (Warned("oplog", "short: 33 minutes", 10.0, 10.0),)
    assert journal.with_warnings({"oplog": "short: 33 minutes"}, 12.0) == journal
    journal = journal.with_warnings({}, 20.0)
    assert journal.with_warnings({}, 21.0) == journal
    journal = journal.with_warnings({"oplog": "short: 9 minutes"}, 30.0)
    assert journal.warnings == (Warned("oplog", "short: 9 minutes", 10.0, 30.0, None, 2, 10.0),)
    many = journal.with_warnings({str(n): "x" for n in range(1_000)}, 40.0)
    assert len(many.warnings) == MOST_WARNINGS


def test_counts_continue_after_a_process_began_again() -> None:
    assert Counts(7, 5, 0).since(Counts(3, 5, 0)) == Counts(4, 0, 0)
    assert Counts(2, 0, 0).since(Counts(3, 5, 0)) == Counts(2, 0, 0)
    assert Counts(1, 2, 3).plus(Counts(1, 1, 1)) == Counts(2, 3, 4)


def test_each_change_of_the_record_is_an_entry() -> None:
    old = run_record(phase=Phase.APPLYING)
    failure = Failure("DuplicateIds", "Why.")
    failed = replace(old, state=State.FAILED, failure=failure)
    assert entries(old, failed) == [
        (Kind.FAILURE, "DuplicateIds: Why."),
        (Kind.STATE, "FAILED"),
    ]
    assert entries(failed, failed) == []
    withdrawn = replace(old, phase=Phase.WITHDRAWING)
    assert entries(old, withdrawn) == [(Kind.WITHDRAWN, "")]
    assert entries(old, replace(old, can_write=True)) == [(Kind.WRITABLE, "")]
    repaired = replace(old, repair_done=1, repaired_documents=3)
    assert entries(old, repaired) == [(Kind.REPAIRED, "3 documents, 0 definitions")]


def test_a_takeover_says_for_how_long_no_process_ran() -> None:
    old = run_record(journal=Journal(saved_at=2.0))
    (process,) = with_changes(old, replace(old, owner="other"), 5.0).processes
    assert (process.at, process.gap) == (5.0, 3.0)
    paused = replace(old, state=State.PAUSED)
    (process,) = with_changes(paused, replace(paused, owner="other"), 5.0).processes
    assert process.gap is None


def test_a_reversal_ends_a_direction() -> None:
    old = run_record(repaired_documents=2, journal=Journal(counts=Counts(9, 1, 0)))
    journal = with_changes(old, replace(old, reversals=1, repaired_documents=0), 5.0)
    (direction,) = journal.directions
    assert (direction.source, direction.destination) == ("cluster0", "cluster1")
    assert (direction.ended, direction.repaired_documents) == (5.0, 2)
    assert direction.counts == Counts(9, 1, 0)
