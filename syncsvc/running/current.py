"""The run of this process: there is at most one at a time, and none before a start, after a reset and on a standby."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from syncsvc import errors
from syncsvc.metadata import Metadata
from syncsvc.reports.failure import failure_description
from syncsvc.running.process import ProcessContext
from syncsvc.running.runner import Runner
from syncsvc.saved.run import RunRecord, refuse_in_use
from syncsvc.saved.run_store import RunStore
from syncsvc.state import State, Trigger, next_state
from verifier.cluster.cluster import Cluster
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import TaskGroup


class CurrentRun:
    """The current run of this process (if any), the state of the sync, and the resources that the next run will use.

    `reset_ended` is called at the end of a reset, before the run is forgotten.
    """

    def __init__(self, process: ProcessContext, reset_ended: Callable[[], None]) -> None:
        self.process = process
        self.runner: Runner | None = None
        # Whether this process continues a saved run. Then, clients may repeat the start request that began the run.
        self.is_recovered = False
        self._reset_ended = reset_ended
        self.idle_state = State.INITIALIZING  # the state while there is no run

    @property
    def state(self) -> State:
        runner = self.runner
        return self.idle_state if runner is None else runner.record.state

    def use(self, clusters: Mapping[str, Cluster]) -> None:
        """Use these clusters (by name, as in `CLUSTERS`) from now on. Call this only while there is no run."""
        self.process = replace(self.process, clusters=clusters)

    def use_term(self, term: TaskGroup) -> None:
        """Let the threads of the next run belong to the task group of this daemon's term, and stop with it."""
        self.process = replace(self.process, spawn=term.spawn, stop=term.stop)

    def become(self, state: State) -> None:
        """Change the state while there is no run."""
        self.idle_state = state
        self.process.progress.enter(state)

    def runner_of(self, store: RunStore) -> Runner:
        """Create a runner of a saved run. Its constructor makes clusters refuse late writes of earlier engines.

        `launch` starts the runner.
        """
        return Runner(store, self.process, self._forget_reset)

    def launch(self, runner: Runner, is_recovered: bool = False) -> None:
        """Make the run of `runner` the current one, and begin its work.

        `is_recovered` is False if a start request has just begun the run, and True if the run was found saved.
        """
        self.is_recovered = is_recovered
        runner.watch(self._enter_state_of)
        self.runner = runner
        runner.begin()

    def forget(self) -> None:
        """Forget the run, whose threads have ended, and change the state to INITIALIZING."""
        self.runner = None
        self.is_recovered = False
        self.become(State.INITIALIZING)
        self.process.progress.clear()

    def runner_for(self, trigger: Trigger) -> Runner:
        """Return the current runner. Raises OperationError InvalidState if the state does not allow `trigger`."""
        next_state(self.state, trigger)
        assert self.runner is not None
        return self.runner

    def runner_to_reset(self, confirm: str) -> Runner:
        """Return the runner if `confirm` is the name of the sync's destination.

        Raises OperationError InvalidState if there is no sync, DestinationInUse if users may write to the destination
        or the sync was reversed (for any `confirm`), and InvalidRequest if `confirm` is another name.
        """
        runner = self.runner
        if runner is None:
            raise OperationError(
                errors.INVALID_STATE,
                f"There is no sync to reset; the state is {self.state.value}. If you have just reset it, the reset is "
                "complete: POST /api/v1/start starts a new sync.",
            )
        # After a reversal, the destination of the start has the newest data: never ask for its name as a confirmation.
        refuse_in_use(runner.record)
        destination = runner.record.home
        if confirm != destination:
            raise OperationError(
                INVALID_REQUEST,
                f"confirm: Must be {destination}, the name of the destination, whose synced data is dropped.",
            )
        return runner

    def metadata_of(self, runner: Runner) -> Metadata:
        """Return the metadata database of a run."""
        return self.process.metadata(runner.record.home)

    def _enter_state_of(self, record: RunRecord) -> None:
        failure = record.failure if record.state is State.FAILED else None
        name = None if failure is None else failure.name
        self.process.progress.enter(record.state, name, failure_description(record))

    def _forget_reset(self) -> None:
        """Forget the run and change the state to IDLE, at the end of a reset."""
        self._reset_ended()
        self.process.progress.clear()
        self.is_recovered = False
        self.become(next_state(State.RESETTING, Trigger.CLEARED))
        self.runner = None
