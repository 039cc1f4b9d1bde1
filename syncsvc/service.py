"""The commands of the API. A `Runner` executes the sync itself.

A command that changes the sync is checked, saved, shown to queries and answered, in this order, so that a crash cannot
lose an answered command.

The conditions that most commands share are in `syncsvc.gate`. Most queries are in `syncsvc.queries` (if they contact no
cluster) or in `syncsvc.cluster_queries`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import Any
from uuid import uuid4

import pymongo
from pymongo.errors import PyMongoError

from syncsvc.background.dashboards import Dashboards
from syncsvc.background.limiter import Limiter
from syncsvc.background.reporter import Reporter
from syncsvc.cluster_queries import ClusterQueries
from syncsvc.desired import Goal
from syncsvc.engine.run.pace import Pace
from syncsvc.figures.progress import Progress
from syncsvc.gate import Gate
from syncsvc.limits import Document
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.options import CLUSTERS, StartOptions
from syncsvc.preflight.judgement import Judgement, judge
from syncsvc.queries import Queries
from syncsvc.reports.limits import limits_report
from syncsvc.reports.principals import copied_report
from syncsvc.reports.standing import silent_clusters, why_not_ready
from syncsvc.reports.sync import Sync, Watcher
from syncsvc.running.admission import can_commit
from syncsvc.running.beginning import Starts, first_difference, refuse_second
from syncsvc.running.current import CurrentRun
from syncsvc.running.membership import warn_outsider
from syncsvc.running.process import ProcessContext
from syncsvc.saved.find_run import find_run
from syncsvc.saved.journal import Entry, Journal, Kind, Sender, Site
from syncsvc.saved.lease import HOME
from syncsvc.saved.limits import LimitsStore
from syncsvc.saved.run import PhaseBegin, RunRecord
from syncsvc.saved.run_documents import load_owner, load_runs
from syncsvc.saved.run_journal import this_process
from syncsvc.saved.run_store import new_owner
from syncsvc.state import Phase, State, Trigger, next_state
from syncsvc.tuning import LoadLevel, Tuning
from verifier.cluster import failures
from verifier.cluster.bounds import PATIENCE, answered_soon
from verifier.cluster.cluster import Cluster
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError, Violation, raise_all
from verifier.runtime.observer import Observer
from verifier.runtime.retry import impatient
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup
from verifier.runtime.waits import LongWait

_log = logging.getLogger(__name__)

# How long it may take to read the owner of the saved run, in seconds: the lease must be renewed in time.
_OWNER_PATIENCE = 2.0
# How long it may take to save the journal, in seconds.
_JOURNAL_PATIENCE = 5.0


class Service:
    """Runs the commands of the API. There is at most one sync at a time.

    `spawn` runs a function in a thread that the process owns. `watchers` are called every second with a snapshot of the
    sync. `gate` admits or refuses commands (see `Gate.command` for the errors). `queries` and `cluster_queries` answer
    the queries. `goal` is the declared state; None without `--desiredState`.
    """

    def __init__(
        self,
        instance: str,
        load: LoadLevel,
        spawn: Callable[[str, Callable[[], None]], None],
        observe: Observer,
        stop: StopToken,
        tuning: Tuning = Tuning(),
        goal: Goal | None = None,
        watchers: Sequence[Watcher] = (),
        database: str = METADATA_DATABASE,
    ) -> None:
        self.instance = instance
        self._goal = goal
        self._stop = stop
        self.gate = Gate(lambda: self.state, tuning.startup_wait, goal)
        self._progress = Progress()
        pace = Pace()
        process = ProcessContext(
            {}, database, load, pace, tuning, self._progress, spawn, observe, stop
        )
        self._run = CurrentRun(process, lambda: self._limiter.forget_home())
        self._limiter = Limiter(pace, self._progress, self.sync, self._saved_limits)
        self._dashboards = Dashboards(
            self._progress,
            lambda: self._process.clusters,
            self._unstopped_writer,
            database,
            tuning.dashboard_interval,
        )
        self.queries = Queries(instance, self.sync, self._addresses, tuning.history_step)
        self._watchers = (self.queries.record, self._dashboards.watch, *watchers)
        self.cluster_queries = ClusterQueries(
            self._run, self.gate, self.sync, self.keep_journal, lambda: self._limiter.limits, stop
        )
        self._starts = Starts()

    @property
    def state(self) -> State:
        return self._run.state

    @property
    def _process(self) -> ProcessContext:
        return self._run.process

    def connect(self, clusters: Mapping[str, Cluster]) -> None:
        """Use these clusters, and start the threads that report progress, apply speed limits and update dashboards.

        Except for `change_limits`, commands are accepted only after `initialize`.
        """
        self._run.use(clusters)
        self._process.spawn(
            "reporter",
            Reporter(
                clusters,
                self._progress,
                self.sync,
                self._after_pings,
                self._process.tuning,
                self._stop,
            ).run,
        )
        self._process.spawn("limits", partial(self._limiter.run, clusters, self._stop))
        self._process.spawn("dashboards", partial(self._dashboards.run, self._stop))

    def find_run(self, clusters: Mapping[str, Cluster]) -> RunRecord | None:
        """Return the saved run of this instance; None if no cluster has one.

        Raises OperationError if not exactly one saved run matches the clusters, or if a run cannot be read. Also raises
        the driver's errors.
        """
        return find_run(clusters, self.instance, self._process.database)

    def use(self, clusters: Mapping[str, Cluster]) -> None:
        """Use these clusters (by name, as in `CLUSTERS`) from now on. Call this only while this process has no run."""
        self._run.use(clusters)

    def initialize(self, saved: RunRecord | None, term: TaskGroup | None = None) -> None:
        """Continue the run `saved` (None: there is no run), and accept commands from then on.

        If the run is deleted instead (see `Starts.take_over`), the state becomes IDLE. All threads of the run belong to
        the task group `term`, or to the process if `term` is None. Raises OperationError, for example Superseded if
        another process took the run over, and the driver's errors.
        """
        if term is not None:
            self._run.use_term(term)
        if saved is None or not self._recover(saved):
            self._run.become(next_state(self.state, Trigger.READY))
        _log.info("The process is ready.", extra={"state": self.state.value})
        self.gate.startup.end()

    def forget(self) -> None:
        """Forget the run at the end of a term as the active daemon.

        Call this only when all threads of the run have ended. Then `initialize` may be called again.
        """
        self._run.forget()

    def is_superseded(self) -> bool:
        """Return whether another process has saved or taken over the run of this instance. Raises the driver's errors.

        Call this only with `--standby`, because it reads the run on the cluster `HOME`. Return False while this process
        is being initialized or runs a command. Also return False if no run is saved, because a reset may just have
        ended. If the saved run belongs to a start that failed in this process, delete the run, and return False.
        """
        runner = self._run.runner
        if self.state is State.INITIALIZING:
            return False
        with pymongo.timeout(_OWNER_PATIENCE), impatient(0.0):
            owner = load_owner(self._process.metadata(HOME), self.instance)
            if self.gate.busy or self._run.runner is not runner or owner is None:
                return False
            if runner is not None:
                return runner.record.owner != owner
            if self._starts.withdraw(self._process, owner):
                return False
            # A new start may have withdrawn this record in the meantime.
            return owner == load_owner(self._process.metadata(HOME), self.instance)

    @property
    def silent_clusters(self) -> list[str]:
        """Return the names of the clusters that did not answer the last ping. Clusters never pinged are left out."""
        return silent_clusters(tuple(self._process.clusters), self._progress.snapshot)

    def why_not_ready(self) -> str | None:
        """Return a sentence that says why this process is not ready; None if it is. Contacts no cluster."""
        return why_not_ready(
            self.gate.standing,
            self.state,
            self.gate.startup.step,
            tuple(self._process.clusters),
            self._progress.snapshot,
        )

    def start(self, options: StartOptions, sender: Sender) -> None:
        """Check the clusters and the options, save a new run, and begin it. Raises OperationError with all violations.

        This is a no-op if this process continues a saved run with the same options, unless the run is paused, failed or
        being reset, or syncs in the other direction.
        """
        with self.gate.command(Trigger.START), impatient(PATIENCE):
            self._refuse_other_home(options)
            if self._is_answered_again(options):
                return
            if self._run.runner is not None:
                refuse_second(self._run.runner.record, options)
            state = next_state(self.state, Trigger.START)
            self._starts.withdraw_failed(self._process)
            judgement = self._check_start(options)
            raise_all(judgement.violations)
            _log.info("Preflight checks completed.", extra={"warnings": list(judgement.warnings)})
            # Use the facts that the preflight has read: those read when the process started may lack the cluster IDs,
            # which are saved in the record.
            self._run.use(judgement.clusters)
            names = (options.source, options.destination)
            source, destination = (judgement.clusters[name] for name in names)
            now = time()
            record = RunRecord(
                instance=self.instance,
                owner=new_owner(),
                state=state,
                phase=Phase.INITIALIZING,
                options=options,
                identities=(source.identity, destination.identity),
                fence=uuid4(),
                instances=judgement.instances,
                phases=(PhaseBegin(Phase.INITIALIZING, now),),
                journal=_begun((source, destination), _command("start", sender), now),
            )
            # The limits are saved before the run: after a crash, a restarted process must not continue without limits.
            self._limiter.begin_at(self._limits_at(record.home))
            self._run.launch(self._starts.begin(self._process, record, self._run.runner_of))

    def preflight(self, options: StartOptions) -> Judgement:
        """Check a start with these options: return its violations, warnings and estimates. Changes nothing.

        Raises OperationError: InvalidState if the process is not initialized in time, NotActive on a standby,
        CommandInProgress during another preflight, and InvalidRequest with `--standby` if the destination is cluster0.
        """
        self.gate.await_startup()
        self._refuse_other_home(options)
        with self.gate.preflight(), impatient(PATIENCE):
            judgement = self._check_start(options)
            return replace(judgement, violations=(*self._no_start(), *judgement.violations))

    def pause(self, sender: Sender) -> None:
        """Stop the sync until `resume` continues it at the same point. Raises OperationError.

        Calls to a cluster that are in progress may end after this method returns; `resume` waits for them.
        """
        with self.gate.command(Trigger.PAUSE), answered_soon():
            self._run.runner_for(Trigger.PAUSE).pause(_command("pause", sender))

    def resume(self, sender: Sender) -> None:
        """Continue a sync that is paused or failed. Raises OperationError."""
        # The whole command has no time limit, because it waits for the run to stop, and prepares an engine.
        with self.gate.command(Trigger.RESUME), impatient(PATIENCE):
            self._run.runner_for(Trigger.RESUME).resume(_command("resume", sender))

    def repair(self, sender: Sender) -> None:
        """Request a repair of the differences that the verification has found, without waiting for the repair.

        If the sync failed because its verification failed, its state becomes RUNNING again. On a follower, that is the
        only effect. Raises OperationError.
        """
        # The whole command has no time limit, because it may wait for the run to stop, and prepare an engine.
        with self.gate.command(Trigger.REPAIR), impatient(PATIENCE):
            self._run.runner_for(Trigger.REPAIR).repair(_command("repair", sender))

    def copy_users(self, sender: Sender) -> dict[str, Any]:
        """Copy users and roles before the commit; return how many were copied, in the form of `copied_report`.

        Raises OperationError. The sync continues, even if the copy has failed.
        """
        # The whole command has no time limit, because there may be many users.
        with self.gate.command(Trigger.COPY_PRINCIPALS), impatient(PATIENCE):
            runner = self._run.runner_for(Trigger.COPY_PRINCIPALS)
            runner.copy_principals(_command("copy users and roles", sender))
            return copied_report(runner.record)

    def commit(self, sender: Sender) -> None:
        """Request the cut-over of the sync, without waiting for its end. Raises OperationError."""
        with self.gate.command(Trigger.COMMIT), answered_soon():
            self._run.runner_for(Trigger.COMMIT).commit(_command("commit", sender))

    def reverse(self, sender: Sender) -> None:
        """Begin to reverse a committed sync: its destination becomes the source. Raises OperationError."""
        # The whole command has no time limit, because it reads the change streams of both clusters.
        with self.gate.command(Trigger.REVERSE), impatient(PATIENCE):
            self._run.runner_for(Trigger.REVERSE).reverse(_command("reverse", sender))

    def reset(self, confirm: str, sender: Sender) -> None:
        """Reset the sync: save the state RESETTING, and start a thread that runs the reset (`syncsvc.engine.reset`).

        This is a no-op while a reset runs. `confirm` must be the name of the sync's destination. Raises OperationError.
        """
        with self.gate.command(Trigger.RESET), answered_soon():
            self._run.runner_to_reset(confirm).reset(_command("reset", sender))

    def _addresses(self) -> dict[str, str]:
        return {name: each.facts.address for name, each in self._process.clusters.items()}

    def limits(self) -> dict[str, Any]:
        """Return the answer to `GET /api/v1/limits`, without `success`. Contacts no cluster."""
        limiter = self._limiter
        return limits_report(limiter.limits, limiter.are_saved, self._progress.snapshot.throttling)

    def change_limits(self, changes: Document, sender: Sender) -> None:
        """Change the limits that `changes` names. `changes` has the form of the body of `PATCH /api/v1/limits`.

        A standby accepts this command, too, and so does a process that runs another command. Raises OperationError, for
        example CommandInProgress while another request changes the limits.
        """
        self.gate.startup.wait()
        if not self._process.clusters:
            raise self.gate.not_initialized()
        with answered_soon(), failures.named_errors():
            self._limiter.change(changes)
        runner = self._run.runner
        if runner is not None:
            runner.note(_command(f"limits {json.dumps(changes)}", sender))

    def keep_journal(self) -> None:
        """Save the new warnings and event counts of this process in the journal of the sync, for the report.

        The counts are the numbers of applied change events, applied DDL events, and documents copied again.

        Without a sync, discard the new warnings. During a reset, do nothing. This is called every few seconds, and when
        a report is requested. Errors are ignored, because the next call saves the same warnings and counts. Raises
        `Cancelled` only when the process is stopping.
        """
        runner = self._run.runner
        if runner is None:
            # Otherwise, the report of the next sync would show these warnings as its own.
            self._progress.forget_begun(self._progress.begun)
            return
        if self.state is State.RESETTING:
            return
        with self._briefly():
            runner.keep_journal()

    def _after_pings(self) -> None:
        """Warn if this process has no sync and does not belong to the saved one; then save the journal.

        The order matters: without a sync, `keep_journal` discards the new warnings. Errors are ignored, because the
        next call repeats both. Raises `Cancelled` only when the process is stopping.
        """
        process = self._process
        with self._briefly():
            # In other states, this process has a sync, is a standby, or does not know yet whether it has one.
            runs = load_runs(process.metadata(HOME)) if self.state is State.IDLE else ()
            warn_outsider(self._progress, self.instance, f"{process.database} on {HOME}", runs)
        self.keep_journal()

    @contextmanager
    def _briefly(self) -> Iterator[None]:
        """Limit the time of the calls in the block, and ignore their errors; raise `Cancelled` if the process stops."""
        with (
            suppress(PyMongoError, OperationError, Cancelled),
            impatient(_JOURNAL_PATIENCE, in_total=_JOURNAL_PATIENCE),
            pymongo.timeout(_JOURNAL_PATIENCE),
        ):
            yield
        # The end of a term as active daemon also cancels the calls, but must not end the thread of the reporter.
        self._stop.check()

    def _saved_limits(self) -> LimitsStore | None:
        """Return the store of the limits.

        Return None during a reset, and while it is unknown which cluster stores the limits.
        """
        runner, standing = self._run.runner, self.gate.standing
        if self.state is State.RESETTING:
            return None
        if runner is not None:
            return self._limits_at(runner.record.home)
        return None if standing is None else self._limits_at(HOME)

    def _limits_at(self, name: str) -> LimitsStore:
        # This writer also works while this process is a standby, because a standby can change the limits, too.
        return LimitsStore(self._process.metadata(name), self._unstopped_writer(name))

    def _unstopped_writer(self, name: str) -> ClusterWriter:
        """Return a writer to the cluster `name`. Only the end of the process stops its calls."""
        cluster = self._process.clusters[name]
        return ClusterWriter(cluster.client, cluster.facts.access_control, self._stop)

    def each_second(self, waits: tuple[LongWait, ...]) -> None:
        """Show the long waits of the process in the progress, and call all watchers with a snapshot of the sync."""
        self._progress.show_waits(waits)
        sync = self.sync()
        for watch in self._watchers:
            watch(sync)

    def sync(self) -> Sync:
        """Return a snapshot of everything that this process knows about the sync. Contacts no cluster."""
        runner, snapshot = self._run.runner, self._progress.snapshot
        sync = Sync(
            self._shown_state,
            None,
            snapshot,
            can_commit=False,
            now=monotonic(),
            standing=self.gate.standing,
            instance=self.instance,
            goal=self._goal,
        )
        if runner is None:
            return sync
        record = runner.record
        return replace(
            sync,
            state=record.state,
            record=record,
            can_commit=can_commit(record, snapshot),
            collections=runner.collections,
            figures=self._progress.collections.figures,
        )

    @property
    def _shown_state(self) -> State:
        """Return the state to show while this process has no run; on a standby, that of the active daemon if known."""
        standing = self.gate.standing
        if standing is None or not standing.is_standby or standing.lease is None:
            return self._run.idle_state
        saved = (standing.lease.progress or {}).get("state")
        # A daemon of a later version may have more states.
        return next((each for each in State if each.value == saved), self._run.idle_state)

    def _refuse_other_home(self, options: StartOptions) -> None:
        """Raise OperationError InvalidRequest if the destination is cluster0 and this is a daemon with `--standby`."""
        if self.gate.standing is not None and options.destination == CLUSTERS[0]:
            raise OperationError(
                INVALID_REQUEST,
                f"destination: Must be {HOME}, because this process was started with --standby. To sync in the other "
                "direction, swap the connection strings of the two clusters.",
            )

    def _recover(self, saved: RunRecord) -> bool:
        """Take over and continue a saved run. Return False if it was deleted instead: see `Starts.take_over`."""
        self._limiter.begin_at(self._limits_at(saved.home))
        store = self._starts.take_over(self._process, saved)
        if store is None:
            return False
        self._run.launch(self._run.runner_of(store), is_recovered=True)
        return True

    def _is_answered_again(self, options: StartOptions) -> bool:
        """Return whether a start with these options is a no-op, because this process continues the same sync.

        A script may send its start again after a restart of the process. So return True if this process continues a
        saved run with the same options, unless the run is paused, failed or being reset, or syncs in the other
        direction.
        """
        runner = self._run.runner
        if not self._run.is_recovered or runner is None:
            return False
        if runner.record.state in (State.PAUSED, State.FAILED, State.RESETTING):
            return False
        return first_difference(runner.record, options) is None

    def _no_start(self) -> Iterator[Violation]:
        """Yield a violation if the current state does not allow a start."""
        try:
            next_state(self.state, Trigger.START)
        except OperationError as error:
            yield error.kind, error.description

    def _check_start(self, options: StartOptions) -> Judgement:
        process = self._process
        memory = process.tuning.memory_needed
        limit = process.tuning.spool_limit
        return judge(
            options,
            self.instance,
            process.clusters,
            process.database,
            memory,
            limit,
            process.stop,
        )


def _command(name: str, sender: Sender) -> Entry:
    """Return a journal entry for a command, with the current time."""
    return Entry(Kind.COMMAND, time(), name, sender)


def _begun(clusters: Iterable[Cluster], start: Entry, now: float) -> Journal:
    """Return the first journal of a sync that begins at `now` with the command `start`."""
    journal = Journal(tuple(Site.of(each.name, each.facts) for each in clusters), saved_at=now)
    running = Entry(Kind.STATE, now, State.RUNNING.value)
    return journal.with_process(this_process(now)).with_entries(start, running)
