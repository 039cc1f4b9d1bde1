"""Decides which commands bring a sync to the state that the configuration declares (`--desiredState`).

Sends nothing: `syncsvc.reconciler` sends the commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from syncsvc.errors import CONTRADICTS_DESIRED_STATE
from syncsvc.options import StartOptions
from syncsvc.state import State, Trigger
from verifier.runtime.errors import OperationError


class DesiredState(Enum):
    """The state that the configuration declares (`--desiredState`): the process sends the commands that lead to it.

    With PAUSED, the process only pauses a running sync, and starts none.
    """

    RUNNING = "running"
    PAUSED = "paused"
    COMMITTED = "committed"


# For each declared state, the next command in each state of the sync. In the other states, no command is sent: none is
# needed, or only an operator can decide.
_NEXT = {
    DesiredState.RUNNING: {State.IDLE: Trigger.START, State.PAUSED: Trigger.RESUME},
    DesiredState.PAUSED: {State.RUNNING: Trigger.PAUSE},
    DesiredState.COMMITTED: {
        State.IDLE: Trigger.START,
        State.PAUSED: Trigger.RESUME,
        State.RUNNING: Trigger.COMMIT,
    },
}
# For each declared state, the commands that are refused. This process would undo most of them with its next command; a
# commit cannot be undone.
_UNDONE = {
    DesiredState.RUNNING: frozenset({Trigger.PAUSE, Trigger.RESET}),
    DesiredState.PAUSED: frozenset(
        {Trigger.START, Trigger.RESUME, Trigger.REPAIR, Trigger.COMMIT, Trigger.REVERSE}
    ),
    DesiredState.COMMITTED: frozenset({Trigger.PAUSE, Trigger.RESET, Trigger.REVERSE}),
}


@dataclass(frozen=True)
class Goal:
    """The declared state of a sync, and the options with which the sync is started."""

    state: DesiredState
    options: StartOptions

    @property
    def commits(self) -> bool:
        """Return whether the process commits the sync by itself as soon as a commit is possible."""
        return self.state is DesiredState.COMMITTED

    def next_command(self, state: State, can_commit: bool) -> Trigger | None:
        """Return the next command that leads from `state` to the declared state; None if there is none to send now."""
        command = _NEXT[self.state].get(state)
        return None if command is Trigger.COMMIT and not can_commit else command

    def contradicts(self, command: Trigger) -> bool:
        """Return whether the declared state forbids the command; for example, RUNNING forbids a pause.

        Some commands are permitted although they lead to another state: a commit while the declared state is RUNNING,
        and a reset while it is PAUSED.
        """
        return command in _UNDONE[self.state]

    def refuse(self, command: Trigger) -> None:
        """Raise OperationError ContradictsDesiredState if the command contradicts the declared state."""
        if self.contradicts(command):
            raise OperationError(
                CONTRADICTS_DESIRED_STATE,
                f"The configuration of this process declares desiredState {self.state.value}, which the command "
                f"{command.value} contradicts.",
            )
