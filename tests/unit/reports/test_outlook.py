"""Tests the texts of the web page that say whether a commit is possible, why not, and what the next step is.

Also tests the list of allowed commands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson.timestamp import Timestamp

from syncsvc.desired import DesiredState, Goal
from syncsvc.figures.progress import OtherInstance, ProgressSnapshot, WarningKind
from syncsvc.options import BuildIndexes, StartOptions
from syncsvc.reports.durations import about
from syncsvc.reports.outlook import commands_now, next_step, summary, why_no_commit
from syncsvc.reports.recovery import Step
from syncsvc.reports.standing import Role, Standing
from syncsvc.reports.sync import Sync
from syncsvc.resuming import UNBLOCKED
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import START, collection_record, known, run_record
from verifier.compare.check_progress import Amounts, Changes, CheckProgress, Outcome, Verdict

NEAR = Changes(lag_seconds=1, recheck_lag_seconds=2)
FIRST = Amounts(10, 10)
CLEAN = CheckProgress(started=1.0, first=FIRST, source=NEAR, destination=NEAR)


def applying(check: CheckProgress | None = CLEAN, lag: int | None = 1, **fields: Any) -> Sync:
    """Return a sync that applies change events.

    `check` is the progress of its verification, and `lag` is the lag of the destination in seconds. `fields` are
    further fields of the sync's progress.
    """
    snapshot = ProgressSnapshot(lag_seconds=lag, check=check, **fields)
    return known(run_record(phase=Phase.APPLYING), snapshot)


# A sync that failed in the cut-over, after it had unblocked the destination.
OPENED = run_record(
    state=State.FAILED,
    phase=Phase.CUTTING_OVER,
    failure=Failure("DuplicateIds", ""),
    steps=(UNBLOCKED,),
)
OTHER = OtherInstance("b", State.PAUSED, Phase.APPLYING, None, 0.0)
REASONS: list[tuple[Sync, list[str]]] = [
    (known(None), ["No sync was started."]),
    (known(None, state=State.INITIALIZING), ["The process is starting."]),
    (known(None, standing=Standing()), ["This daemon is a standby."]),
    (known(run_record()), ["The copy is not finished."]),
    (known(run_record(phase=Phase.INDEXING)), ["The indexes are not built yet."]),
    (known(run_record(state=State.PAUSED)), ["The sync is paused."]),
    (known(run_record(state=State.COMMITTING)), ["A commit is already running."]),
    (known(run_record(state=State.COMMITTED)), ["The sync is already committed."]),
    (known(run_record(state=State.FAILED)), ["The sync has failed."]),
    (
        known(run_record(state=State.FAILED, failure=Failure("DuplicateIds", "Why."))),
        ["The sync has failed with DuplicateIds."],
    ),
    (applying(lag=None), ["It is not known yet how far the destination is behind the source."]),
    (applying(lag=31), ["31 seconds behind the source; a commit allows at most 30 seconds"]),
    (applying(None), ["The verification has not begun."]),
    (
        applying(CheckProgress(started=1.0, amounts=Amounts(5, 10))),
        ["documents compared: 5 of about 10"],
    ),
    (
        applying(
            replace(
                CLEAN,
                source=replace(NEAR, lag_seconds=None),
                destination=replace(NEAR, lag_seconds=240),
            )
        ),
        ["not known yet how far", "4 minutes behind the changes of the destination"],
    ),
    (
        applying(
            replace(
                CLEAN,
                source=replace(NEAR, recheck_lag_seconds=None),
                destination=replace(NEAR, recheck_lag_seconds=240),
            )
        ),
        ["of the source that changed during its first pass", "4 minutes behind in comparing"],
    ),
    (
        applying(warnings={WarningKind.DEFINITIONS_CHANGED: "x"}),
        ["The definition of a collection or index was changed"],
    ),
    (
        known(
            run_record(phase=Phase.APPLYING, repair=1), ProgressSnapshot(lag_seconds=0, check=CLEAN)
        ),
        ["are being repaired"],
    ),
    (applying(others=(OTHER,)), ["instance b: its state is PAUSED"]),
    (applying(hindrances=("An index is missing.",)), ["An index is missing."]),
    (applying(), ["has not determined yet"]),
    (applying(replace(CLEAN, verdict=Verdict(Outcome.PASSED))), ["has not determined yet"]),
]


@pytest.mark.parametrize("sync, reasons", REASONS)
def test_why_a_commit_is_not_possible(sync: Sync, reasons: list[str]) -> None:
    found = why_no_commit(sync)
    assert len(found) == len(reasons)
    for text, part in zip(found, reasons, strict=True):
        assert part in text and text.endswith(".")


def test_changes_of_the_copy_are_named() -> None:
    record = run_record(phase=Phase.APPLYING, copy_end=Timestamp(2_000_000_000, 1), position=START)
    found = why_no_commit(known(record, ProgressSnapshot(lag_seconds=0, check=CLEAN)))
    assert found == ("Not all changes made during the copy are applied yet.",)


@pytest.mark.parametrize(
    "applied, text",
    [
        (None, "instance b: it has not applied all changes made during the copy yet."),
        (1_699_999_899, "instance b: it has not applied all changes made during the copy yet."),
        (1_699_999_969, "instance b: it is 31 seconds behind this instance; a commit allows at"),
        (1_699_999_970, "has not determined yet"),
    ],
)
def test_an_instance_that_is_behind_is_named(applied: int | None, text: str) -> None:
    end = Timestamp(1_699_999_900, 1)
    record = run_record(phase=Phase.APPLYING, copy_end=end, position=START, instances=("a", "b"))
    other = replace(OTHER, state=State.RUNNING, applied_until=applied)
    snapshot = ProgressSnapshot(lag_seconds=0, check=CLEAN, others=(other,))
    (found,) = why_no_commit(known(replace(record, instance="a"), snapshot))
    assert text in found


def test_one_of_several_instances_does_not_speak_for_the_others() -> None:
    paused = run_record(state=State.PAUSED, instances=("coordinator", "b"))
    assert why_no_commit(known(paused)) == ("This instance of the sync is paused.",)
    awaited = ProgressSnapshot(warnings={WarningKind.INSTANCE_AWAITED: "b (commit)"})
    committing = replace(paused, state=State.COMMITTING, phase=Phase.APPLYING)
    assert "The commit waits for other instances" in summary(known(committing, awaited))


@pytest.mark.parametrize(
    "name, text",
    [
        ("DuplicateIds", "Send the resume to every instance that has failed."),
        ("VerificationFailed", "Send the repair to every instance that has failed."),
        ("EventTooLarge", "Send the reset to every instance, first to the coordinator (a)."),
    ],
)
def test_a_failure_of_several_instances_needs_a_command_to_each(name: str, text: str) -> None:
    step = next_step(known(failed(name, instance="b", instances=("a", "b"))))
    assert step is not None and step.text.endswith(f" {text}")
    alone = next_step(known(failed(name)))
    assert alone is not None and text not in alone.text


def test_a_follower_waits_for_its_coordinator() -> None:
    record = run_record(phase=Phase.APPLYING, instance="b", instances=("a", "b"))
    found = why_no_commit(known(record, ProgressSnapshot(lag_seconds=0)))
    assert found == ("The coordinator a has not reported that a commit is possible.",)


def test_there_is_always_a_reason_or_a_commit() -> None:
    for state in State:
        for phase in Phase:
            for possible in (False, True):
                record = run_record(state=state, phase=phase)
                sync = known(record, can_commit=possible)
                assert bool(why_no_commit(sync)) is not possible
                assert summary(sync).endswith(".")
                next_step(sync)


AFTER = StartOptions("cluster0", "cluster1", build_indexes=BuildIndexes.AFTER_DATA_COPY)


@pytest.mark.parametrize(
    "sync, text",
    [
        (known(run_record(), ProgressSnapshot(total_bytes=300, copied_bytes=299)), ": 99 % done."),
        (known(run_record(), ProgressSnapshot(total_bytes=300, copied_bytes=300)), ": 100 % done."),
        (
            known(
                run_record(phase=Phase.INDEXING, options=AFTER),
                collections=(collection_record({}, {"name": "a_1", "key": {"a": 1}}),),
            ),
            "building the indexes: 0 of 1 are built.",
        ),
        (applying(lag=600), "10 minutes behind the source."),
        (known(run_record(state=State.COMMITTING)), "The last changes are being applied"),
        (
            known(run_record(state=State.COMMITTING, phase=Phase.WITHDRAWING)),
            "then the commit begins again by itself.",
        ),
        (
            known(run_record(state=State.COMMITTING, can_write=True)),
            "making indexes unique again, are still running.",
        ),
        (known(run_record(state=State.COMMITTED)), "may write to the destination."),
        (known(None, standing=Standing()), "It is not known which daemon is active now."),
    ],
)
def test_the_summary(sync: Sync, text: str) -> None:
    assert text in summary(sync)


@pytest.mark.parametrize(
    "sync, command",
    [
        (known(None), "start"),
        (known(None, state=State.INITIALIZING), None),
        (known(run_record()), None),
        (known(run_record(state=State.PAUSED)), "resume"),
        (known(run_record(state=State.FAILED)), "resume"),
        (
            known(run_record(state=State.FAILED, failure=Failure("VerificationFailed", ""))),
            "repair",
        ),
        (known(run_record(state=State.FAILED, failure=Failure("EventTooLarge", ""))), "reset"),
        (
            known(
                run_record(state=State.FAILED, failure=Failure("EventTooLarge", ""), reversals=1)
            ),
            None,
        ),
        (known(OPENED), "reset"),
        (known(run_record(state=State.FAILED, failure=Failure("Superseded", ""))), None),
        (known(run_record(phase=Phase.APPLYING), can_commit=True), "commit"),
        (known(run_record(state=State.COMMITTED)), None),
        (known(None, standing=Standing()), None),
    ],
)
def test_the_next_command(sync: Sync, command: str | None) -> None:
    step = next_step(sync)
    assert (None if step is None else step.command) == command


def test_with_several_instances_every_instance_needs_a_command() -> None:
    record = run_record(phase=Phase.APPLYING, instance="a", instances=("a", "b"))
    step = next_step(known(record, can_commit=True))
    assert step is not None and step.command == "commit"
    assert "send the commit to every instance (a, b)" in step.text
    awaited = "Some instances have not received a command: b (commit)."
    snapshot = ProgressSnapshot(warnings={WarningKind.INSTANCE_AWAITED: awaited})
    for state in (State.RUNNING, State.COMMITTING, State.RESETTING):
        assert next_step(known(replace(record, state=state), snapshot, can_commit=True)) == Step(
            awaited
        )


def commit_failed(name: str, saved: bool = False, **fields: Any) -> Sync:
    """Return a sync whose commit has failed with the error `name`. `saved` is whether the failure is saved."""
    failure = Failure(name, "", saved_state=None if saved else State.COMMITTING)
    usual = {"phase": Phase.APPLYING, "failure": failure}
    return known(run_record(state=State.FAILED, **{**usual, **fields}))


CUT_OVER: dict[str, Any] = {"phase": Phase.CUTTING_OVER, "steps": (UNBLOCKED,)}
# For each cluster that the sync has blocked, whether it was blocked before.
BOTH_BLOCKED = {"cluster0": False, "cluster1": False}
ON_SOURCE = "The applications can stay on the source (cluster0), or return to it."
STOPPED = "Keep the applications stopped: the commit stays requested"


@pytest.mark.parametrize(
    "sync, where, command",
    [
        (commit_failed("UnexpectedServerError"), STOPPED, "resume"),
        # The destination may be unblocked already; the resumed commit completes this.
        (commit_failed("NotAuthorized", **CUT_OVER), STOPPED, "resume"),
        (commit_failed("InternalError", can_write=True), "Leave the applications on the", "resume"),
        (commit_failed("VerificationFailed", saved=True), ON_SOURCE, "repair"),
        (commit_failed("DuplicateIds", saved=True, **CUT_OVER), ON_SOURCE, "reset"),
        (
            commit_failed("DuplicateIds", saved=True, found_blocked=BOTH_BLOCKED),
            "but this sync still blocks user writes there. If that lasts longer than a minute, restart the daemon",
            "resume",
        ),
        # Users were blocked on the source before the sync, so a restart does not unblock them.
        (
            commit_failed("DuplicateIds", saved=True, found_blocked={"cluster0": True}),
            ON_SOURCE,
            "resume",
        ),
        (
            commit_failed("NotAuthorized", found_blocked=BOTH_BLOCKED),
            STOPPED,
            "resume",
        ),
        (
            known(
                run_record(
                    state=State.FAILED,
                    failure=Failure("ClusterUnreachable", "", saved_state=State.RUNNING),
                )
            ),
            ON_SOURCE,
            "resume",
        ),
        (
            commit_failed("DuplicateIds", saved=True, reversals=1),
            "stay on the source (cluster1)",
            "resume",
        ),
    ],
)
def test_the_place_of_the_applications_after_a_failure(
    sync: Sync, where: str, command: str
) -> None:
    step = next_step(sync)
    assert step is not None and step.command == command
    assert where in step.text
    assert command == "reset" or command in commands_now(sync)


IF_RECEIVED = "If any instance has received the commit, keep"


@pytest.mark.parametrize(
    "instance, error, saved_state, can_write, where",
    [
        (
            "b",
            "ClusterUnreachable",
            State.RUNNING,
            False,
            f"belong. {IF_RECEIVED} the applications",
        ),
        (
            "b",
            "ClusterUnreachable",
            State.COMMITTING,
            False,
            f"belong. {IF_RECEIVED} the applications",
        ),
        # The coordinator may have unblocked the destination already.
        ("b", "DefinitionNotApplicable", None, False, "belong. Remove the cause"),
        ("b", "NotAuthorized", State.RESETTING, False, "belong. Remove the cause"),
        ("b", "DefinitionNotApplicable", None, True, "Leave the applications on the destination"),
        (
            "a",
            "ClusterUnreachable",
            State.RUNNING,
            False,
            f"{IF_RECEIVED} the applications stopped.",
        ),
        ("a", "ClusterUnreachable", State.COMMITTING, False, STOPPED),
        ("a", "DefinitionNotApplicable", None, False, ON_SOURCE),
        ("a", "DefinitionNotApplicable", State.RUNNING, False, ON_SOURCE),
        ("a", "NotAuthorized", State.RESETTING, False, ON_SOURCE),
    ],
)
def test_the_place_of_the_applications_with_several_instances(
    instance: str, error: str, saved_state: State | None, can_write: bool, where: str
) -> None:
    record = run_record(
        state=State.FAILED,
        failure=Failure(error, "", saved_state=saved_state),
        can_write=can_write,
        instance=instance,
        instances=("a", "b"),
    )
    step = next_step(known(record))
    assert step is not None and where in step.text
    asks = step.text.startswith("The status of the coordinator (a) shows")
    assert asks is (instance == "b" and not can_write)


@pytest.mark.parametrize("error", ["VerificationFailed", "DuplicateIds", "EventTooLarge"])
@pytest.mark.parametrize("desired", [None, *DesiredState])
def test_only_waiting_is_advised_until_the_failure_of_a_commit_is_saved(
    desired: DesiredState | None, error: str
) -> None:
    goal = None if desired is None else Goal(desired, StartOptions("cluster0", "cluster1"))
    step = next_step(replace(commit_failed(error), goal=goal))
    assert step is not None and step.command is None
    assert step.text.startswith("Keep the applications stopped until this step changes: this")
    assert "repeat syncctl status" in step.text and "If it keeps showing this step," in step.text
    assert "desiredState" not in step.text and "cluster0" not in step.text


@pytest.mark.parametrize(
    "reversals, state, completed",
    [
        (0, State.COMMITTING, "If you cannot wait, only a reset ends the commit. Remove the cause"),
        # A reversed sync cannot be reset.
        (1, State.COMMITTING, "would be lost. Remove the cause"),
        (0, State.COMMITTING, "resume the sync to complete the commit."),
        (1, State.REVERSING, "resume the sync to complete the reversal."),
        (0, State.RESETTING, "reset the sync again."),
        (0, State.RUNNING, "then resume the sync."),
    ],
)
def test_an_interrupted_step_is_completed(reversals: int, state: State, completed: str) -> None:
    failure = Failure("UnexpectedServerError", "", saved_state=state)
    record = run_record(state=State.FAILED, failure=failure, reversals=reversals)
    step = next_step(known(record))
    assert step is not None and completed in step.text


def test_a_daemon_that_becomes_a_standby_is_not_to_be_stopped() -> None:
    superseded = run_record(state=State.FAILED, failure=Failure("Superseded", ""))
    assert next_step(known(superseded)) is not None
    assert next_step(known(superseded, standing=Standing(Role.ACTIVE))) is None


def test_the_metadata_of_a_reversed_sync_is_dropped_on_both_clusters() -> None:
    """After a reverse, the run record stays on cluster1, whose production data must not be dropped."""
    step = next_step(known(failed("EventTooLarge", reversals=1)))
    assert step is not None
    assert "copied data on cluster0, and the metadata of the sync on both clusters" in step.text


REVERSIBLE = StartOptions("cluster0", "cluster1", reversible=True)
COMMITTED = run_record(state=State.COMMITTED, phase=Phase.DONE, can_write=True)
FOLLOWER: dict[str, Any] = {"instance": "b", "instances": ("a", "b")}


def failed(name: str, **fields: Any) -> RunRecord:
    """Return the record of a sync that failed with this error while it applied change events."""
    return run_record(state=State.FAILED, phase=Phase.APPLYING, failure=Failure(name, ""), **fields)


def test_the_declared_state_may_forbid_a_reversal() -> None:
    goal = Goal(DesiredState.COMMITTED, REVERSIBLE)
    step = next_step(known(replace(COMMITTED, options=REVERSIBLE), goal=goal))
    assert step is not None and "first set desiredState to running and restart" in step.text


@pytest.mark.parametrize(
    "record, text",
    [
        (COMMITTED, "Keep the report; then stop this process, and clean up"),
        (replace(COMMITTED, options=REVERSIBLE), "You can reverse the sync until you clean up"),
    ],
)
def test_only_a_reversible_sync_is_kept_after_the_commit(record: RunRecord, text: str) -> None:
    step = next_step(known(record))
    assert step is not None and step.command is None
    assert step.text.startswith(f"Point the applications to the destination. {text} ")


@pytest.mark.parametrize(
    "sync, commands",
    [
        (known(None), ["start"]),
        (known(run_record()), ["pause", "reset"]),
        (known(run_record(), standing=Standing(Role.ACTIVE)), ["pause", "reset"]),
        (known(run_record(), standing=Standing()), []),
        (
            known(run_record(phase=Phase.APPLYING), can_commit=True),
            ["pause", "commit", "repair", "reset"],
        ),
        (known(run_record(phase=Phase.APPLYING, **FOLLOWER)), ["pause", "reset"]),
        (known(run_record(state=State.PAUSED)), ["resume", "reset"]),
        (known(OPENED), ["reset"]),
        (known(failed("DuplicateIds", reversals=1)), ["resume"]),
        (known(failed("OplogWindowExceeded")), ["resume", "reset"]),
        (known(failed("EventTooLarge")), ["reset"]),
        (known(failed("VerificationFailed")), ["resume", "repair", "reset"]),
        (known(failed("VerificationFailed", **FOLLOWER)), ["resume", "repair", "reset"]),
        (known(COMMITTED), []),
        (known(replace(COMMITTED, options=REVERSIBLE)), ["reverse"]),
    ],
)
def test_the_allowed_commands(sync: Sync, commands: list[str]) -> None:
    assert commands_now(sync) == commands


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (59.9, "59 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (7_199, "119 minutes"),
        (7_200, "2 hours"),
        (200_000, "2 days"),
    ],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_commands_that_the_configuration_contradicts_are_not_offered() -> None:
    goal = Goal(DesiredState.PAUSED, StartOptions("cluster0", "cluster1"))
    paused = replace(known(run_record(state=State.PAUSED, phase=Phase.APPLYING)), goal=goal)
    assert commands_now(paused) == ["reset"]
    step = next_step(paused)
    assert step is not None and step.command is None
    assert "desiredState paused. To continue, set desiredState to running" in step.text
    running = replace(paused, goal=replace(goal, state=DesiredState.RUNNING))
    assert "resume" in commands_now(running)


@pytest.mark.parametrize(
    "desired, text",
    [
        (DesiredState.RUNNING, "so the daemon starts the sync by itself with the options of its"),
        (DesiredState.COMMITTED, "Stop the applications that write to the source before that."),
        (DesiredState.PAUSED, "To start the sync, set desiredState to running and restart"),
    ],
)
def test_with_a_declared_state_no_start_is_advised(desired: DesiredState, text: str) -> None:
    goal = Goal(desired, StartOptions("cluster0", "cluster1"))
    step = next_step(known(None, goal=goal))
    assert step is not None and step.command is None
    assert f"declares desiredState {desired.value}" in step.text
    assert text in step.text


@pytest.mark.parametrize("can_commit", [False, True])
def test_a_declared_commit_is_announced_before_it_happens(can_commit: bool) -> None:
    goal = Goal(DesiredState.COMMITTED, StartOptions("cluster0", "cluster1"))
    sync = known(run_record(phase=Phase.APPLYING), can_commit=can_commit, goal=goal)
    step = next_step(sync)
    assert step is not None and step.command is None
    assert "so the sync commits by itself as soon as canCommit is true" in step.text
    started = replace(sync, record=run_record(state=State.COMMITTING))
    assert next_step(started) != step
    # The declared state has no effect on a sync with other options.
    other = replace(goal, options=replace(goal.options, reversible=True))
    assert next_step(replace(sync, goal=other)) == next_step(replace(sync, goal=None))


@pytest.mark.parametrize(
    "desired, error, first",
    [
        (DesiredState.PAUSED, "DuplicateIds", "First set desiredState to running"),
        (DesiredState.RUNNING, "EventTooLarge", "First set desiredState to paused"),
        (DesiredState.RUNNING, "DuplicateIds", None),
    ],
)
def test_after_a_failure_the_declared_state_is_changed_first(
    desired: DesiredState, error: str, first: str | None
) -> None:
    goal = Goal(desired, StartOptions("cluster0", "cluster1"))
    step = next_step(known(failed(error), goal=goal))
    assert step is not None and step.text.startswith(ON_SOURCE)
    assert (step.command is None) is (first is not None)
    assert first is None or f"declares desiredState {desired.value}. {first}" in step.text


@pytest.mark.parametrize(
    "desired, command",
    [
        (None, "reset"),
        (DesiredState.PAUSED, "reset"),
        # In these states, the daemon would start a new sync after the reset.
        (DesiredState.RUNNING, None),
        (DesiredState.COMMITTED, None),
    ],
)
def test_a_failed_reset_is_repeated_only_if_no_new_sync_starts_after_it(
    desired: DesiredState | None, command: str | None
) -> None:
    failure = Failure("NotAuthorized", "", saved_state=State.RESETTING)
    goal = None if desired is None else Goal(desired, StartOptions("cluster0", "cluster1"))
    sync = known(run_record(state=State.FAILED, failure=failure), goal=goal)
    step = next_step(sync)
    assert step is not None and step.command == command
    assert step.body == ({"confirm": "cluster1"} if command else None)
    assert ("set desiredState to paused" in step.text) is (command is None)
    assert "desiredState to running" not in step.text
    assert "commit" not in step.text.replace("committed", "")
    assert command is None or command in commands_now(sync)


COMMITS = "committed, so the sync would commit by itself as soon as canCommit is true. "
INTERRUPTED = run_record(
    state=State.FAILED, failure=Failure("NotAuthorized", "", saved_state=State.RUNNING)
)


@pytest.mark.parametrize(
    "sync, where, command",
    [
        (commit_failed("VerificationFailed", saved=True), ON_SOURCE, None),
        (commit_failed("DuplicateIds", saved=True), ON_SOURCE, None),
        # A restart continues the sync.
        (known(INTERRUPTED), "Keep the applications stopped for now.", None),
        # A resume completes the commit.
        (commit_failed("NotAuthorized"), STOPPED, "resume"),
        (
            commit_failed("DuplicateIds", saved=True, can_write=True),
            "Leave the applications on the destination (cluster1)",
            "resume",
        ),
    ],
)
def test_a_declared_commit_is_not_repeated_after_a_failure(
    sync: Sync, where: str, command: str | None
) -> None:
    goal = Goal(DesiredState.COMMITTED, StartOptions("cluster0", "cluster1"))
    step = next_step(replace(sync, goal=goal))
    assert step is not None and step.command == command
    assert step.text.startswith(where)
    assert (COMMITS in step.text) is (command is None)
    first = "set desiredState to running and restart the daemon"
    assert (first in step.text) is (command is None)


@pytest.mark.parametrize(
    "desired, saved_state, last",
    [
        (
            DesiredState.PAUSED,
            State.RUNNING,
            "then set desiredState to running and restart the daemon, which continues the sync.",
        ),
        (
            DesiredState.COMMITTED,
            State.RUNNING,
            "then set desiredState to running and restart the daemon, which continues the sync.",
        ),
        (
            DesiredState.PAUSED,
            State.REVERSING,
            "then set desiredState to running and restart the daemon, which completes the reversal.",
        ),
        (
            DesiredState.PAUSED,
            State.COMMITTING,
            "then restart the daemon, which completes the commit.",
        ),
        (
            DesiredState.RUNNING,
            State.RESETTING,
            "then set desiredState to paused and restart the daemon, which completes the reset.",
        ),
    ],
)
def test_no_command_is_named_if_the_restart_already_continues_the_sync(
    desired: DesiredState, saved_state: State, last: str
) -> None:
    failure = Failure("NotAuthorized", "", saved_state=saved_state)
    goal = Goal(desired, StartOptions("cluster0", "cluster1"))
    step = next_step(known(run_record(state=State.FAILED, failure=failure), goal=goal))
    assert step is not None and step.command is None
    assert step.text.endswith(f" Remove the cause of the failure, {last}")


@pytest.mark.parametrize(
    "desired, first",
    [
        (DesiredState.PAUSED, "."),
        (DesiredState.RUNNING, " (first set desiredState to paused and restart the daemon)."),
        (DesiredState.COMMITTED, " (first set desiredState to paused and restart the daemon)."),
    ],
)
def test_a_reset_that_ends_a_commit_may_need_another_declaration(
    desired: DesiredState, first: str
) -> None:
    goal = Goal(desired, StartOptions("cluster0", "cluster1"))
    step = next_step(replace(commit_failed("NotAuthorized"), goal=goal))
    assert step is not None
    assert f"only a reset ends the commit{first} " in step.text


def test_a_reset_is_named_while_the_work_is_still_being_stopped() -> None:
    assert summary(known(run_record(state=State.RESETTING))) == "The sync is being reset."
