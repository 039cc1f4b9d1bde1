"""The state of the sync that the configuration declares (`--desiredState`), and which commands bring it about.

No I/O: `syncsvc.reconciler` sends the commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.errors import CONTRADICTS_DESIRED_STATE
from syncsvc.options import StartOptions
from syncsvc.settings import DesiredState
from syncsvc.state import State, Trigger
from verifier.runtime.errors import OperationError

# The next command in each state. In the other states there is nothing to do: the sync proceeds by itself, its end is
# reached, or only an operator can decide.
_NEXT = {
    DesiredState.RUNNING: {State.IDLE: Trigger.START, State.PAUSED: Trigger.RESUME},
    DesiredState.PAUSED: {State.RUNNING: Trigger.PAUSE},
    DesiredState.COMMITTED: {
        State.IDLE: Trigger.START,
        State.PAUSED: Trigger.RESUME,
        State.RUNNING: Trigger.COMMIT,
    },
}
# The commands after which the next command would follow at once, and undo what the operator wanted.
_UNDONE = {
    DesiredState.RUNNING: frozenset({Trigger.PAUSE, Trigger.RESET}),
    DesiredState.PAUSED: frozenset(
        {Trigger.START, Trigger.RESUME, Trigger.REPAIR, Trigger.COMMIT, Trigger.REVERSE}
    ),
    DesiredState.COMMITTED: frozenset({Trigger.PAUSE, Trigger.RESET, Trigger.REVERSE}),
}


@dataclass(frozen=True)
class Goal:
    """The declared state, and the options with which the sync is started."""

    state: DesiredState
    options: StartOptions

    def next_command(self, state: State, can_commit: bool) -> Trigger | None:
        """Return the command that brings a sync in this state nearer to the goal; None if there is none now."""
        command = _NEXT[self.state].get(state)
        return None if command is Trigger.COMMIT and not can_commit else command

    def contradicts(self, command: Trigger) -> bool:
        """Return whether this process would undo the command at once."""
        return command in _UNDONE[self.state]

    def refuse(self, command: Trigger) -> None:
        """Raise OperationError ContradictsDesiredState if this process would undo the command at once."""
        if self.contradicts(command):
            raise OperationError(
                CONTRADICTS_DESIRED_STATE,
                f"The configuration of this process declares desiredState {self.state.value}, so that the process "
                f"would undo the command {command.value}.",
            )
