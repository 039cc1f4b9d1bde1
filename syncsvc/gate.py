"""Admits commands of the API: one at a time, after the initialization of the process, and never on a standby.

A preflight may run beside a command. Changes of the limits (`PATCH /api/v1/limits`) do not pass the gate: they may run
beside other commands, also on a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from syncsvc import errors
from syncsvc.desired import Goal
from syncsvc.reports.standing import Standing, refuse_on_standby
from syncsvc.state import State, Trigger
from verifier.cluster import failures
from verifier.runtime.commands import Commands, Startup
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Cancelled


class Gate:
    """Admits or refuses the commands of the API.

    `state` returns the current state of the sync. Commands wait up to `startup_wait` seconds for the initialization of
    the process. `goal` is the desired state in the configuration, and commands that contradict it are refused; None if
    the configuration has no desired state.
    """

    def __init__(self, state: Callable[[], State], startup_wait: float, goal: Goal | None) -> None:
        self._state = state
        self._startup_wait = startup_wait
        self._goal = goal
        self._commands = Commands()
        # One at a time: if a cluster hangs, several preflights would block all threads that answer requests.
        self._preflights = Commands()
        self.startup = Startup(startup_wait)
        # None without `--standby`.
        self.standing: Standing | None = None

    def show_standing(self, standing: Standing) -> None:
        """Set the role of this process, active or standby. `standing` also contains the newest lease.

        While the process is a standby, the gate refuses every command, even one that waits for the initialization. If
        the process becomes active, new commands wait until it is initialized again.
        """
        if not standing.is_standby and self.is_standby:
            # The commands that arrive from now on wait until the saved sync is continued.
            self.startup = Startup(self._startup_wait)
            self.startup.step = "reading the saved sync"
        self.standing = standing
        if standing.is_standby:
            self.startup.end()

    @property
    def is_standby(self) -> bool:
        return self.standing is not None and self.standing.is_standby

    @property
    def busy(self) -> bool:
        """Return whether a command is running."""
        return self._commands.busy

    def wait_for_commands(self) -> None:
        """Wait until no command runs. Call `show_standing` with the role of a standby first to refuse new commands."""
        self._commands.wait()

    def stop_waiting(self) -> None:
        """Refuse the commands that wait for the initialization, because the process is stopping."""
        self.startup.step = "stopping"
        self.startup.end()

    @contextmanager
    def command(self, trigger: Trigger | None = None) -> Iterator[None]:
        """Run the block, which executes a command; no other command can run meanwhile.

        `trigger` is the state transition that the command requests; None for a dry run, which does not change the sync.
        Raises OperationError CommandInProgress if another command is running, NotActive on a standby, InvalidState if
        the process is not initialized in time, and ContradictsDesiredState if the desired state forbids the command.
        Also raises the block's errors; known errors of the driver become OperationErrors.
        """
        self.await_startup()
        if self._goal is not None and trigger is not None:
            self._goal.refuse(trigger)
        with self._commands.one(), self.while_active(), failures.named_errors():
            yield

    @contextmanager
    def preflight(self) -> Iterator[None]:
        """Run the block, which executes a preflight. Commands may run at the same time.

        Raises OperationError CommandInProgress if another preflight is running, OperationError NotActive on a standby,
        and the block's errors.
        """
        with self._preflights.one(), self.while_active():
            yield

    def await_startup(self) -> None:
        """Wait until the process is initialized.

        Raises OperationError InvalidState if that takes too long, if the process is stopping, or if too many commands
        wait already; NotActive if this process is a standby.
        """
        refuse_on_standby(self.standing)
        self.startup.wait()
        refuse_on_standby(self.standing)
        if self._state() is State.INITIALIZING:
            raise self.not_initialized()

    def not_initialized(self) -> OperationError:
        """Return the error for a command that arrives before the process is initialized."""
        return OperationError(
            errors.INVALID_STATE, f"The state is INITIALIZING: the process is {self.startup.step}."
        )

    @contextmanager
    def while_active(self) -> Iterator[None]:
        """Run the block, unless this process is a standby: then raise OperationError NotActive.

        Also raise NotActive if the block was cancelled because the process has become a standby. A block that completes
        raises nothing, even if the process is a standby by then.
        """
        refuse_on_standby(self.standing)
        try:
            yield
        except Cancelled:
            # The end of a term (see `syncsvc.standby`) cancels the calls of its commands.
            refuse_on_standby(self.standing)
            raise
