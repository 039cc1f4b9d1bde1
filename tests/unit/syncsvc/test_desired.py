"""Tests which commands bring a sync to the declared state, and which are refused because they contradict that state."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncsvc.cli import main
from syncsvc.desired import DesiredState, Goal
from syncsvc.errors import CONTRADICTS_DESIRED_STATE
from syncsvc.options import StartOptions
from syncsvc.state import State, Trigger, next_state
from verifier.runtime.errors import OperationError

OPTIONS = StartOptions("cluster0", "cluster1")
COMMANDS = (
    Trigger.START,
    Trigger.PAUSE,
    Trigger.RESUME,
    Trigger.REPAIR,
    Trigger.COMMIT,
    Trigger.REVERSE,
    Trigger.RESET,
)
CLUSTERS = ("--cluster0", "mongodb://127.0.0.1:1", "--cluster1", "mongodb://127.0.0.1:2")


def is_refused(goal: Goal, command: Trigger) -> bool:
    try:
        goal.refuse(command)
    except OperationError as error:
        assert error.kind is CONTRADICTS_DESIRED_STATE
        return True
    return False


@pytest.mark.parametrize(
    "desired, state, command",
    [
        (DesiredState.RUNNING, State.IDLE, Trigger.START),
        (DesiredState.RUNNING, State.PAUSED, Trigger.RESUME),
        (DesiredState.PAUSED, State.RUNNING, Trigger.PAUSE),
        (DesiredState.COMMITTED, State.IDLE, Trigger.START),
        (DesiredState.COMMITTED, State.PAUSED, Trigger.RESUME),
        (DesiredState.COMMITTED, State.RUNNING, Trigger.COMMIT),
    ],
)
def test_the_next_command_is_possible_and_not_refused(
    desired: DesiredState, state: State, command: Trigger
) -> None:
    goal = Goal(desired, OPTIONS)
    assert goal.next_command(state, can_commit=True) is command
    assert not is_refused(goal, command)
    next_state(state, command)


@pytest.mark.parametrize("desired", DesiredState)
@pytest.mark.parametrize(
    "state",
    [
        State.INITIALIZING,
        State.COMMITTING,
        State.COMMITTED,
        State.REVERSING,
        State.RESETTING,
        State.FAILED,
    ],
)
def test_no_command_is_sent_in_a_state_that_changes_by_itself_or_needs_an_operator(
    desired: DesiredState, state: State
) -> None:
    assert Goal(desired, OPTIONS).next_command(state, can_commit=True) is None


def test_a_commit_waits_for_can_commit() -> None:
    assert Goal(DesiredState.COMMITTED, OPTIONS).next_command(State.RUNNING, False) is None


@pytest.mark.parametrize("desired", DesiredState)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_refused_if_another_one_would_undo_it(
    desired: DesiredState, command: Trigger
) -> None:
    goal = Goal(desired, OPTIONS)
    # The resting state after the command.
    after = {
        Trigger.START: State.RUNNING,
        Trigger.PAUSE: State.PAUSED,
        Trigger.RESUME: State.RUNNING,
        Trigger.REPAIR: State.RUNNING,
        Trigger.COMMIT: State.COMMITTED,
        Trigger.REVERSE: State.RUNNING,
        Trigger.RESET: State.IDLE,
    }[command]
    following = goal.next_command(after, can_commit=True)
    # With `committed`, a commit follows after a start, a resume and a repair, but does not undo them. With `paused`, a
    # commit is refused, too, because it would go beyond the desired state.
    wanted = desired is DesiredState.COMMITTED and command in (
        Trigger.START,
        Trigger.RESUME,
        Trigger.REPAIR,
    )
    passed = desired is DesiredState.PAUSED and command is Trigger.COMMIT
    assert is_refused(goal, command) == (passed or (following is not None and not wanted))


@pytest.mark.parametrize(
    "content, options, named",
    [
        ("source: cluster0\n", ("--desiredState", "running"), "destination"),
        ("source: [\n", ("--desiredState", "running"), "cannot be read as YAML or JSON"),
        ("source: a\ndestination: b\nunheard: 1\n", ("--desiredState", "paused"), "unheard"),
        ("source: cluster0\ndestination: cluster1\n", (), "--desiredState"),
        ("source: cluster0\ndestination: cluster1\n", ("--desiredState", "done"), "done"),
    ],
)
def test_a_wrong_declaration_ends_the_process_and_names_the_field(
    content: str,
    options: tuple[str, ...],
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "start.yaml"
    file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        main([*CLUSTERS, "--startFile", str(file), *options])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
