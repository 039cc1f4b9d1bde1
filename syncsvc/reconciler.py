"""Brings the sync to the state that the configuration declares, with the commands that an operator would send."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic

from syncsvc.desired import Goal
from syncsvc.reports.sync import Sync
from syncsvc.saved.journal import Sender
from syncsvc.service import Service
from syncsvc.state import State, Trigger
from verifier.runtime import waits
from verifier.runtime.audit import OwnCommands
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.errors import INTERNAL_ERROR, OperationError
from verifier.runtime.recent import RecentCommands
from verifier.runtime.tasks import StopToken

# The name of the caller in the audit log and on the page.
CALLER = "desiredState"
_SENDER = Sender(CALLER)
# How often the state of the sync is compared with the goal, in seconds.
_INTERVAL = 1.0
# In these states, no command is sent anyway, so the options of the saved sync are not compared with those of the goal.
_ENDED = (State.INITIALIZING, State.COMMITTED, State.RESETTING)

_log = logging.getLogger(__name__)


class Reconciler:
    """Sends the commands that lead to the declared state, one at a time, and retries refused commands.

    No command is sent on a standby, or if the saved sync has other options than those in the configuration. `retry` is
    the time before a refused command is sent again, in seconds; after CommandInProgress, it is one second.
    """

    def __init__(self, service: Service, goal: Goal, recent: RecentCommands, retry: float) -> None:
        self._goal = goal
        self._service = service
        self._recent = recent
        self._audit = OwnCommands(CALLER)
        self._retry = retry
        self._wait: waits.Wait | None = None
        self._not_before = 0.0
        # The kinds of bugs that were logged since the command was first sent.
        self._bugs: set[type[Exception]] = set()
        self._commands: dict[Trigger, Callable[[], None]] = {
            Trigger.START: partial(service.start, goal.options, _SENDER),
            Trigger.PAUSE: partial(service.pause, _SENDER),
            Trigger.RESUME: partial(service.resume, _SENDER),
            Trigger.COMMIT: partial(service.commit, _SENDER),
        }

    def run(self, stop: StopToken) -> None:
        """Send the commands that lead to the declared state, until stopped: then raise `Cancelled`."""
        try:
            while True:
                self._step()
                stop.sleep(_INTERVAL)
        finally:
            self._show(None)

    def _step(self) -> None:
        sync = self._service.sync()
        if sync.is_standby:
            self._rest()
        elif self._is_another(sync):
            self._rest(
                "The options of the saved sync differ from those in startFile (without a startFile: from the default "
                "options), so the daemon sends no commands to reach desiredState",
                "Put the options of the saved sync back into startFile, and restart the process. Or, to begin a sync "
                "with the new options: set desiredState to paused, restart the process, reset the sync, set "
                "desiredState back, and restart the process again.",
            )
        elif (command := self._goal.next_command(sync.state, sync.can_commit)) is None:
            self._rest()
        elif monotonic() >= self._not_before:
            self._send(command)

    def _is_another(self, sync: Sync) -> bool:
        record = sync.record
        return (
            record is not None and sync.state not in _ENDED and record.options != self._goal.options
        )

    def _send(self, command: Trigger) -> None:
        state = self._goal.state.value
        if not self._audit.repeats(command.value):
            self._bugs.clear()
            _log.info(
                "Sending a command, because the state of the sync is not the desiredState of the configuration.",
                extra={"command": command.value, "desiredState": state},
            )
        try:
            with self._audit.record(command.value), self._recent.own(CALLER, command.value):
                self._execute(command)
        except OperationError as error:
            if error.kind is COMMAND_IN_PROGRESS:
                return
            self._not_before = monotonic() + self._retry
            self._show(
                f"The configuration declares desiredState {state}, but the command {command.value} is refused with "
                f"{error.kind.name}",
                f"{error} The command is retried every {self._retry:.0f} s.",
            )
        else:
            self._show(None)

    def _execute(self, command: Trigger) -> None:
        """Execute a command. Raises OperationError; unexpected errors become InternalError, as in the HTTP API.

        An unexpected error must not end the process: the sync continues without the command. While the command is
        retried, each kind of unexpected error is logged once.
        """
        try:
            self._commands[command]()
        except OperationError:
            raise
        except Exception as error:
            if type(error) not in self._bugs:
                self._bugs.add(type(error))
                _log.error(
                    "A command that desiredState requires failed because of a bug in this program. The command is "
                    "retried. Report the bug with this line of the log.",
                    exc_info=error,
                    extra={"command": command.value},
                )
            raise OperationError(INTERNAL_ERROR, f"{type(error).__name__}: {error}.") from error

    def _rest(self, what: str | None = None, remedy: str = "") -> None:
        """Show in the progress why no command is sent now (`what`), and the `remedy`; nothing if `what` is None.

        The audit log will record the next command as a new one, not as a repetition.
        """
        self._audit.forget()
        self._show(what, remedy)

    def _show(self, what: str | None, remedy: str = "") -> None:
        """Show in the progress, as a long wait, why the sync is not in the declared state (`what`), and the `remedy`.

        The wait continues with the new remedy if `what` is unchanged. If `what` is None, only end the wait that is
        shown.
        """
        if self._wait is not None:
            if self._wait.what == what:
                self._wait.remedy = remedy
                return
            waits.end(self._wait)
        self._wait = None if what is None else waits.begin(what, remedy)
