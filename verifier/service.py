"""The commands and queries of the verifier. Owns the check; the API and the command line call it.

A command is checked, saved, made visible and answered, in this order. Queries of progress read frozen values and never
access a cluster; queries of mismatches read the saved state.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from time import time
from typing import Any

import bson
from pymongo.errors import OperationFailure, PyMongoError

from verifier import __version__, errors, rules
from verifier.cluster import failures
from verifier.cluster.bounds import PATIENCE, answered_soon
from verifier.cluster.cluster import Cluster, refreshed
from verifier.cluster.filters import bad_patterns
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check import Check, begin
from verifier.compare.check_progress import CheckProgress, Phase
from verifier.compare.errors import INVALID_FILTER, METADATA_BLOCKED, OTHER_CHECK_SAVED, SUPERSEDED
from verifier.compare.listing import Listing
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.points import Point
from verifier.compare.record import CheckProcess, CheckRecord, Request, SentCommand
from verifier.compare.rows import read_page_token
from verifier.compare.store import CheckStore
from verifier.compare.tuning import CheckTuning
from verifier.compare.verdict import incomplete
from verifier.compare.worker import Sides
from verifier.reports.report import MOST_LISTED, Subject, report
from verifier.runtime.commands import Commands
from verifier.runtime.errors import (
    INTERNAL_ERROR,
    ErrorKind,
    OperationError,
    describe,
    in_words_of,
    raise_all,
)
from verifier.runtime.observer import Observer
from verifier.runtime.retry import impatient
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import Cancelled, StopToken
from verifier.runtime.waits import long_waits
from verifier.settings import Settings

_log = logging.getLogger(__name__)

# How long the start of the process retries a failing call, in seconds.
_STARTUP_PATIENCE = 30.0

# Errors whose cause may be gone after a restart. They are reported but not saved, so that a restarted process continues
# the check.
_PASSING = frozenset(
    {
        SUPERSEDED,
        METADATA_BLOCKED,
        failures.CLUSTER_UNREACHABLE,
        failures.NOT_AUTHORIZED,
        failures.UNEXPECTED_SERVER_ERROR,
        INTERNAL_ERROR,
    }
)


class Service:
    """The service: runs one check at a time, and saves its state on the cluster `metadata`.

    `spawn` runs a function in a thread that the process owns, which gets the given name.
    """

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        metadata: Cluster,
        settings: Settings,
        spawn: Callable[[str, Callable[[], None]], None],
        observe: Observer,
        stop: StopToken,
        tuning: CheckTuning = CheckTuning(),
    ) -> None:
        self._tuning = tuning
        self._source = source
        self._destination = destination
        self._settings = settings
        self._spawn = spawn
        self._observe = observe
        self._stop = stop
        self._commands = Commands()
        writer = ClusterWriter(metadata.client, metadata.facts.access_control, stop)
        self._store = CheckStore(metadata.client, writer, settings.metadata_database, stop)
        self._check: Check | None = None

    def recover(self) -> None:
        """Continue the saved check if there is one, or load its result if it has ended; with --clean, drop it first.

        The result of a check with other options is not loaded. Raises OperationError: OtherCheckSaved if the saved
        check is of other clusters, or is not finished and has other options.
        """
        with failures.named_errors(), impatient(_STARTUP_PATIENCE):
            if self._settings.clean:
                self._store.clean()
            record = self._store.load()
            if record is None:
                return
            self._refuse_others(record)
            if record.ended is None:
                self._store.take_over(_this_process())
                self._launch(self._recalled_check())
            elif self._matches_options(record):
                self._check = self._recalled_check()

    def check(self, document_filter: dict[str, Any] | None, command: SentCommand) -> None:
        """Save a new check of the documents that match the filter (None: all), and run it in another thread.

        `command` is saved with the check. Raises OperationError, for example if a check is running or a
        cluster is unfit for a check.
        """
        with self._commands.one(), failures.named_errors(), impatient(PATIENCE):
            if self._is_running():
                raise OperationError(
                    errors.CHECK_IN_PROGRESS,
                    "A check is already running, so no new one was started.",
                )
            request = self._request(document_filter)
            self._refuse_unfit(request)
            begin(
                *(self._source, self._destination, request, self._store, self._stop),
                commands=(command,),
                processes=(_this_process(),),
            )
            self._launch(self._new_check())
            self._observe(Point.BEGUN, "")

    def writes_off(self, command: SentCommand) -> None:
        """Save that users no longer write to either cluster, so that the running check compares what is left and ends.

        Raises OperationError, for example if no check is running or this command was already sent to the check.
        """
        with self._commands.one(), failures.named_errors(), answered_soon():
            if self._check is None or not self._is_running():
                raise OperationError(
                    errors.NO_CHECK_RUNNING, "No check is running, so writesOff has nothing to end."
                )
            if self._store.record.writes_off:
                raise OperationError(
                    errors.WRITES_ALREADY_OFF, "writesOff was already sent to this check."
                )
            self._check.no_more_writes(command=command)

    def progress(self) -> CheckProgress:
        """Return the progress of the check, without access to a cluster; the phase is IDLE if there is no check."""
        return CheckProgress() if self._check is None else self._check.figures.progress()

    def report(self) -> dict[str, Any]:
        """Return the report of the newest check, see `reports.report`. Mismatches that cannot be read are named.

        Raises OperationError NoCheck.
        """
        check = self._check
        if check is None:
            raise OperationError(errors.NO_CHECK, "There is no check to report on.")
        mismatches, unread = self._first_mismatches()
        return report(
            Subject(
                self._store.record,
                check.figures.progress(),
                (self._source.facts, self._destination.facts),
                mismatches,
                unread,
                tuple(each.text for each in long_waits()),
                _this_process(),
            )
        )

    def _first_mismatches(self) -> tuple[tuple[StoredMismatch, ...], tuple[str, ...]]:
        """Return the first mismatches, and a sentence if they cannot be read."""
        try:
            with failures.named_errors(), answered_soon():
                definitions = [*self.definition_mismatches(None, MOST_LISTED)]
                left = MOST_LISTED - len(definitions)
                return (*definitions, *self.document_mismatches(None, left, 0.0)), ()
        except (OperationError, PyMongoError) as error:
            return (), (
                f"Which documents and definitions differ, because this cannot be read: {error}",
            )

    def document_mismatches(
        self,
        after: str | None,
        limit: int | None,
        least_seconds: float,
        namespaces: Collection[str] = (),
    ) -> Iterator[StoredMismatch]:
        """Return the documents that differ, as `CheckStore.document_mismatches` yields them; none without a check.

        They are read during the iteration, which raises OperationError and the driver's errors. The call itself raises
        OperationError for an invalid page token.
        """
        _refuse_unless_page_token(after)
        if self._check is None:
            return iter(())
        return self._store.document_mismatches(after, limit, least_seconds, namespaces)

    def definition_mismatches(
        self, after: str | None, limit: int | None, namespaces: Collection[str] = ()
    ) -> Iterator[StoredMismatch]:
        """Return the definitions and counts that differ, as `CheckStore.definition_mismatches` yields them.

        Return nothing without a check. Raises as `document_mismatches` does, also during the iteration.
        """
        _refuse_unless_page_token(after)
        if self._check is None:
            return iter(())
        return self._store.definition_mismatches(after, limit, namespaces)

    def _is_running(self) -> bool:
        return self._check is not None and self._check.figures.progress().phase is not Phase.IDLE

    def _request(self, document_filter: dict[str, Any] | None) -> Request:
        raw = bson.encode(document_filter) if document_filter else None
        return Request(self._settings.scope, self._settings.mode, raw)

    def _matches_options(self, record: CheckRecord) -> bool:
        """Return whether the saved check was started with the options of this process.

        Its document filter is ignored, because that comes from the request and not from an option.
        """
        own = self._request(None)
        return replace(record.request, document_filter=None) == own

    def _refuse_others(self, record: CheckRecord) -> None:
        identities = (self._source.identity, self._destination.identity)
        if record.identities != identities:
            raise OperationError(
                OTHER_CHECK_SAVED,
                f"The saved check compares {' and '.join(record.identities)}, not {' and '.join(identities)}.",
            )
        if record.ended is None and not self._matches_options(record):
            raise OperationError(
                OTHER_CHECK_SAVED,
                "The saved check is not finished, and was started with other namespaces or another docCompareMethod.",
            )

    def _refuse_unfit(self, request: Request) -> None:
        """Raise OperationError if a cluster or the request is unfit for a check.

        Asks both clusters again, because the facts from the start of the process may be out of date.
        """
        self._source, self._destination = refreshed(self._source), refreshed(self._destination)
        facts = self._source.facts, self._destination.facts
        raise_all(rules.violations(request.scope, *facts))
        bad = bad_patterns(self._destination.client, request.scope.namespaces, self._stop)
        if bad:
            raise OperationError(INVALID_REQUEST, f"{'; '.join(bad)}.")
        if request.document_filter is not None:
            for cluster in (self._source, self._destination):
                _refuse_filter(cluster, bson.decode(request.document_filter))

    def _new_check(self) -> Check:
        settings = self._settings
        sides = Sides(
            self._source,
            self._destination,
            settings.workers,
            settings.partition_size,
            self._tuning,
        )
        subject = Listing(
            self._source, self._destination, self._store.record.request.scope, self._stop
        )
        return Check(subject, sides, self._store, settings.grace_seconds, self._observe, self._stop)

    def _recalled_check(self) -> Check:
        """Return the saved check, ready to run, with its saved figures loaded. Raises the driver's errors."""
        check = self._new_check()
        check.figures.recall()
        return check

    def _launch(self, check: Check) -> None:
        self._check = check
        self._spawn("check", self._run_check)

    def _run_check(self) -> None:
        """Run the check as the outermost frame of its thread. An error ends the check with the verdict `incomplete`.

        Only `Cancelled` is raised; the check then continues after a restart.
        """
        check = self._check
        assert check is not None
        try:
            verdict = check.run()
            _log.info("The check has ended.", extra={"verdict": verdict.outcome.value})
        except Cancelled:
            raise
        except Exception as error:
            kind, description = describe(in_words_of(errors.ALL, failures.named(error)))
            _log.error(
                "The check cannot be completed.",
                exc_info=error,
                extra={"error": kind.name, "errorDescription": description},
            )
            self._give_up(check, kind, description)

    def _give_up(self, check: Check, kind: ErrorKind, description: str) -> None:
        """End a check as incomplete: show that verdict, and save it unless a restart may remove the cause.

        The verdict is shown before it is saved, because the save may fail for the same reason. A failure to save it is
        only logged.
        """
        verdict = incomplete(kind, description)
        check.figures.given_up = verdict
        if kind in _PASSING:
            return
        try:
            self._store.update(verdict=verdict, ended=time())
        except (OperationError, PyMongoError) as error:
            _log.error(
                "Could not save the verdict. Restart the process when the cluster that stores the state of the check "
                "answers: the check then continues.",
                extra={"error": str(error)},
            )


def _this_process() -> CheckProcess:
    return CheckProcess(time(), __version__, socket.gethostname())


def _refuse_unless_page_token(after: str | None) -> None:
    if after is not None:
        try:
            read_page_token(after)
        except ValueError as error:
            raise OperationError(INVALID_REQUEST, f"after: {error}.") from error


def _refuse_filter(cluster: Cluster, document_filter: dict[str, Any]) -> None:
    """Raise OperationError InvalidFilter if the cluster cannot plan a find with that filter."""
    # Operators that sort by themselves, such as $near, conflict with our own sort. Inside $nor, the server refuses
    # them.
    query = {"find": "any", "filter": {"$nor": [document_filter]}}
    try:
        # Use a database that exists: mongos does not explain queries of databases that do not exist.
        cluster.client.admin.command({"explain": query, "verbosity": "queryPlanner"})
    except OperationFailure as error:
        if failures.named_kind(error) is not None:
            raise
        text = failures.text_of(error)
        raise OperationError(
            INVALID_FILTER, f"The {cluster.name} refused the filter: {text}."
        ) from error
