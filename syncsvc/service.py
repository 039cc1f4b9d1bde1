"""The commands and queries of the API. Owns the state; hands the work to the coordinator.

A command is checked, then saved, then visible, then answered, in this order: an answer never claims what a crash would
forget. Queries read frozen values, and never touch a cluster.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from syncsvc import errors
from syncsvc.engine.coordinator import Coordinator
from syncsvc.engine.destination import Destination
from syncsvc.engine.listing import refuse_time_series
from syncsvc.engine.observe import Observer
from syncsvc.engine.parts import Parts
from syncsvc.figures.progress import Progress
from syncsvc.options import StartOptions
from syncsvc.preflight import rules
from syncsvc.reports.metrics import Sync
from syncsvc.reports.progress import progress_report
from syncsvc.saved.registry import Registry
from syncsvc.saved.run import Failure, RunRecord, RunStore, load_run, new_owner, other_runs
from syncsvc.settings import LoadLevel
from syncsvc.state import ACTIVE, Phase, State, Trigger, next_state
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster, judge_of_filters
from verifier.cluster.facts import gather
from verifier.cluster.filters import Selection, bad_patterns
from verifier.cluster.inventory import list_collections
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.commands import Commands
from verifier.runtime.errors import OperationError, describe, raise_all
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import Cancelled, StopToken

_log = logging.getLogger(__name__)

# How often a wait looks whether the process is to end, in seconds.
_GLANCE = 0.2

# Failures that a restart may find gone: they are shown, not saved, and a restarted process goes on with the run.
# (A superseded process must not save anything.)
_PASSING = frozenset({errors.SUPERSEDED, failures.CLUSTER_UNREACHABLE, failures.NOT_AUTHORIZED})


class Service:
    """One sync at a time. `spawn` runs a function in a thread that the process owns."""

    def __init__(
        self,
        clusters: dict[str, Cluster],
        instance: str,
        load: LoadLevel,
        spawn: Callable[[str, Callable[[], None]], None],
        observe: Observer,
        stop: StopToken,
    ) -> None:
        self._clusters = clusters
        self._instance = instance
        self._load = load
        self._spawn = spawn
        self._observe = observe
        self._stop = stop
        self._commands = Commands()
        self._progress = Progress()
        self._changing = threading.Lock()  # held while a command or a failure changes the state
        self._run: RunStore | None = None
        self._coordinator: Coordinator | None = None
        self._run_stop = StopToken(stop)
        self._at_rest = threading.Event()  # set while no thread carries the run out
        self._at_rest.set()
        # A run that this process found: the start that began it may be sent again.
        self._recovered = False

    @property
    def state(self) -> State:
        run = self._run
        return State.IDLE if run is None else run.record.state

    def start(self, options: StartOptions) -> None:
        """Begin a sync. Raises OperationError."""
        with self._commands.one(), failures.named_errors():
            if self._is_answered_again(options):
                return
            state = next_state(self.state, Trigger.START)
            raise_all(rules.option_violations(options, self._clusters))
            source, destination = self._pair(options)
            self._check_clusters(options, source, destination)
            record = RunRecord(
                instance=self._instance,
                owner=new_owner(),
                state=state,
                phase=Phase.INITIALIZING,
                options=options,
                identities=(source.identity, destination.identity),
            )
            self._begin(RunStore.begin(self._writer(destination), record))

    def pause(self) -> None:
        """Stop a sync where it is, until it is resumed. Raises OperationError.

        Calls that are on their way end after the answer: `resume` waits for them.
        """
        with self._commands.one(), failures.named_errors():
            with self._changing:
                state = next_state(self.state, Trigger.PAUSE)
                assert self._run is not None
                self._run.update(state=state)
            _log.info("The sync is paused.", extra={"state": state.value})
            self._run_stop.stop("pause")

    def resume(self) -> None:
        """Go on with a sync that is paused. Raises OperationError."""
        with self._commands.one(), failures.named_errors():
            state = next_state(self.state, Trigger.RESUME)
            assert self._run is not None
            while not self._at_rest.wait(_GLANCE):
                self._stop.check()
            self._prepare(self._run)
            self._run.update(state=state)
            _log.info("The sync is resumed.", extra={"state": state.value})
            self._go_on()

    def commit(self) -> None:
        """Ask for the cut-over of a sync. Raises OperationError."""
        with self._commands.one(), failures.named_errors():
            with self._changing:
                state = next_state(self.state, Trigger.COMMIT)
                assert self._run is not None and self._coordinator is not None
                if not self._can_commit():
                    raise OperationError(
                        errors.CANNOT_COMMIT, "commit was refused, because canCommit is false."
                    )
                self._run.update(state=state)
            _log.info("Commit was asked for.", extra={"state": state.value})
            self._coordinator.commit()

    def recover(self) -> None:
        """Go on with the run that is saved on one of the clusters, if there is one. Raises OperationError."""
        with failures.named_errors():
            self._recover(list(self._saved_runs()))

    def _recover(self, found: list[tuple[RunRecord, Cluster]]) -> None:
        if not found:
            return
        fitting = [
            (record, destination)
            for record, destination in found
            if self._fits(record, destination)
        ]
        if len(fitting) != 1:
            saved = ", ".join(
                f"{destination.name} holds one from {' to '.join(record.identities)}"
                for record, destination in found
            )
            raise OperationError(errors.WRONG_CLUSTERS, f"Saved runs: {saved}.")
        record, home = fitting[0]
        self._recovered = True
        self._begin(RunStore.take_over(self._writer(home), record))

    def progress(self) -> dict[str, Any]:
        """The body of `progress`, in the shape of the interface."""
        run = self._run
        addresses = {name: cluster.facts.address for name, cluster in self._clusters.items()}
        return progress_report(
            None if run is None else run.record,
            self._progress.snapshot,
            self._can_commit(),
            addresses,
            self._instance,
        )

    def sync(self) -> Sync:
        """What is known now, for the metrics."""
        run = self._run
        record = None if run is None else run.record
        return Sync(record, self._progress.snapshot, self._can_commit())

    def _can_commit(self) -> bool:
        run = self._run
        if run is None or run.record.state is not State.RUNNING:
            return False
        return run.record.phase is Phase.APPLYING and self._progress.snapshot.caught_up

    def _is_answered_again(self, options: StartOptions) -> bool:
        """After a restart a script may send its start again: the run that it asked for is there already."""
        run = self._run
        if not self._recovered or run is None:
            return False
        if run.record.state in (State.PAUSED, State.FAILED):
            return False
        return run.record.options == options

    def _pair(self, options: StartOptions) -> tuple[Cluster, Cluster]:
        return self._clusters[options.source], self._clusters[options.destination]

    def _check_clusters(self, options: StartOptions, source: Cluster, destination: Cluster) -> None:
        """Ask both clusters anew: what was true when the process started need not be true now."""
        raise_all(
            rules.cluster_violations(options, gather(source.client), gather(destination.client))
        )
        others = other_runs(destination.client, self._instance)
        if others:
            names = ", ".join(others)
            raise OperationError(errors.METADATA_LEFT_OVER, f"The metadata is of {names}.")
        self._check_patterns(options, destination)
        if not source.facts.tells_definitions:
            selection = self._selection(options, source, destination, self._stop)
            refuse_time_series(list(list_collections(source.client, selection)))

    def _check_patterns(self, options: StartOptions, judge: Cluster) -> None:
        bad = bad_patterns(judge.client, options.namespaces, self._stop)
        if bad:
            raise OperationError(INVALID_REQUEST, f"{'; '.join(bad)}.")

    def _selection(
        self, options: StartOptions, source: Cluster, destination: Cluster, stop: StopToken
    ) -> Selection:
        judge = judge_of_filters(source, destination)
        return Selection(options.namespaces, judge.client, stop)

    def _saved_runs(self) -> Iterator[tuple[RunRecord, Cluster]]:
        for cluster in self._clusters.values():
            record = load_run(cluster.client, self._instance)
            if record is not None:
                yield record, cluster

    def _fits(self, record: RunRecord, destination: Cluster) -> bool:
        names = (record.options.source, record.options.destination)
        if names[1] != destination.name or names[0] not in self._clusters:
            return False
        identities = tuple(self._clusters[name].identity for name in names)
        return identities == record.identities

    def _writer(self, home: Cluster) -> ClusterWriter:
        """Saves the run, also while it stops."""
        return ClusterWriter(home.client, home.facts.access_control, self._stop)

    def _begin(self, run: RunStore) -> None:
        _log.info("A run begins.", extra={"state": run.record.state.value})
        self._prepare(run)
        self._run = run
        if run.record.state in ACTIVE:
            self._go_on()

    def _prepare(self, run: RunStore) -> None:
        """Make a coordinator from what is saved, with a stop token of its own."""
        self._stop.release(self._run_stop)
        self._run_stop = StopToken(self._stop)
        self._coordinator = Coordinator(self._parts(run, self._run_stop), self._run_stop)

    def _go_on(self) -> None:
        self._at_rest.clear()
        self._spawn("sync", self._carry_out)

    def _parts(self, run: RunStore, stop: StopToken) -> Parts:
        def writer_of(cluster: Cluster) -> ClusterWriter:
            return ClusterWriter(cluster.client, cluster.facts.access_control, stop, run.confirm)

        record = run.record
        source, destination = self._clusters[record.source], self._clusters[record.destination]
        # What is saved stays where the sync began, also when it runs the other way.
        home = self._clusters[record.options.destination]
        writer = writer_of(destination)
        return Parts(
            source=source.client,
            source_facts=source.facts,
            client=destination.client,
            writer=writer,
            source_writer=writer_of(source),
            destination=Destination(writer, stop),
            run=run,
            registry=Registry(home.client, writer_of(home), record.turns, stop),
            selection=self._selection(record.options, source, destination, stop),
            progress=self._progress,
            load=self._load,
            observe=self._observe,
        )

    def _carry_out(self) -> None:
        """The outermost frame of the coordinator's thread: however a run ends, its record says so."""
        assert self._run is not None and self._coordinator is not None
        try:
            self._coordinator.run()
            self._run.update(state=next_state(self._run.record.state, Trigger.FINISH))
            _log.info("The sync is committed.", extra={"state": self._run.record.state.value})
        except Cancelled:
            _log.info("The run has stopped where it is.", extra={"state": self.state.value})
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._at_rest.set()

    def _fail(self, error: Exception) -> None:
        assert self._run is not None
        kind, description = describe(failures.named(error))
        with self._changing:
            if self.state is State.PAUSED:
                # The same is tried again after the pause: nothing that failed counts as done.
                _log.warning("An error came during a pause.", exc_info=error)
                return
            failed = {
                "state": next_state(self.state, Trigger.FAIL),
                "failure": Failure(kind.name, description),
            }
            # Seen first, for once: saving may take long, or be impossible, for the same reason that the run failed.
            self._run.show(**failed)
        _log.error(
            "The sync failed.",
            exc_info=error,
            extra={"error": kind.name, "errorDescription": description},
        )
        if kind not in _PASSING:
            self._run.update(**failed)
