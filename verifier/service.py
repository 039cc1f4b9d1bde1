"""The commands and queries of the verifier. The API and the command line call this module, which owns the check.

A command is validated, saved, shown in the progress and answered, in this order. Queries of progress read frozen values
and never access a cluster; queries of mismatches read the saved state.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from time import time
from typing import Any

import bson
from pymongo.errors import PyMongoError

from verifier import __version__, errors, rules
from verifier.cluster import failures
from verifier.cluster.bounds import PATIENCE, answered_soon
from verifier.cluster.cluster import Cluster, filter_evaluator, refreshed
from verifier.cluster.document_filters import DocumentFilters, bad_queries, refusal
from verifier.cluster.filters import Selection, bad_patterns
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import (
    NAMESPACE_COLLISION,
    collision,
    contradictions,
    entries_of,
)
from verifier.cluster.specification import Document
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check import Check, begin
from verifier.compare.check_progress import CheckProgress, Phase
from verifier.compare.context import Sides
from verifier.compare.errors import INVALID_FILTER, METADATA_BLOCKED, OTHER_CHECK_SAVED, SUPERSEDED
from verifier.compare.listing import Listing, names_on
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.points import Point
from verifier.compare.record import CheckProcess, CheckRecord, Request, SentCommand
from verifier.compare.rows import read_page_token
from verifier.compare.store import CheckStore
from verifier.compare.tuning import CheckTuning
from verifier.compare.verdict import incomplete
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
_PASSING = frozenset({SUPERSEDED, METADATA_BLOCKED, *failures.CLUSTER_ERRORS, INTERNAL_ERROR})

# The namespace on which filters are tested. The collection need not exist, but the database must: a mongos explains no
# query of a missing database.
_ANY = Namespace("admin", "any")


class Service:
    """The verifier's service: runs one check at a time, and saves the state of the check on the cluster `metadata`.

    `spawn(name, function)` runs a function in a thread of the process.
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
        self._metadata = metadata
        self._settings = settings
        self._spawn = spawn
        self._observe = observe
        self._stop = stop
        self._commands = Commands()
        writer = ClusterWriter(metadata.client, metadata.facts.access_control, stop)
        self._store = CheckStore(metadata.client, writer, settings.metadata_database, stop)
        self._check: Check | None = None

    def recover(self) -> None:
        """Continue the saved check, or load its result if it has ended. With --clean, drop the saved check instead.

        The result of a check with other options is not loaded. Raises OperationError, for example OtherCheckSaved if
        the saved check compares other clusters, or if it is not finished and has other options.
        """
        if self._metadata is not self._destination:
            raise_all(rules.unfit_to_store(self._metadata.facts))
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

    def check(
        self,
        document_filter: dict[str, Any] | None,
        command: SentCommand,
        remap: Sequence[Document] = (),
        source_filters: DocumentFilters = DocumentFilters(),
    ) -> None:
        """Save a new check of the documents that match the filter (None: all), and run it in another thread.

        `command` is saved with the check. `remap` is the list of renamed namespaces from the request. `source_filters`
        selects, for single collections, the documents that the destination must have. Raises OperationError, for
        example if a check is running or a cluster does not meet the preconditions of a check.
        """
        with self._commands.one(), failures.named_errors(), impatient(PATIENCE):
            if self._is_running():
                raise OperationError(
                    errors.CHECK_IN_PROGRESS,
                    "A check is already running, so no new one was started.",
                )
            request = _remapped(self._request(document_filter, source_filters), remap)
            self._refuse_unfit(request)
            begin(
                *(self._source, self._destination, request, self._store, self._stop),
                commands=(command,),
                processes=(_this_process(),),
            )
            self._launch(self._new_check())
            self._observe(Point.BEGUN, "")

    def writes_off(self, command: SentCommand) -> None:
        """Save that users no longer write to either cluster: the running check compares the last changes and ends.

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
        """Return the report of the newest check (`reports.report`). If mismatches cannot be read, the report says so.

        Raises OperationError NoCheck if there is no check.
        """
        check = self._check
        if check is None:
            raise OperationError(errors.NO_CHECK, "There is no check to report on.")
        progress = check.figures.progress()
        mismatches, unread = self._first_mismatches() if progress.mismatches.are_some else ((), ())
        return report(
            Subject(
                self._store.record,
                progress,
                (self._source.facts, self._destination.facts),
                mismatches,
                unread,
                tuple(each.text for each in long_waits()),
                _this_process(),
            )
        )

    def _first_mismatches(self) -> tuple[tuple[StoredMismatch, ...], tuple[str, ...]]:
        """Return up to `MOST_LISTED` mismatches, and an empty tuple.

        If the mismatches cannot be read, return an empty tuple, and one sentence for the report that says so.
        """
        try:
            with failures.named_errors(), answered_soon():
                definitions = [*self.definition_mismatches(None, MOST_LISTED)]
                left = MOST_LISTED - len(definitions)
                return (*definitions, *self.document_mismatches(None, left, 0.0)), ()
        except (OperationError, PyMongoError) as error:
            return (), (
                "The documents and definitions that differ are unknown, because the saved mismatches cannot be read. "
                f"{error}",
            )

    def document_mismatches(
        self,
        after: str | None,
        limit: int | None,
        least_seconds: float,
        namespaces: Collection[str] = (),
    ) -> Iterator[StoredMismatch]:
        """Return an iterator over the documents that differ; empty if there is no check.

        Begin after the page token `after` (None: at the first mismatch), and return at most `limit` (None: all). Skip
        documents that have differed for less than `least_seconds`. If `namespaces` (names on the source) is not empty,
        return only their mismatches.

        The iteration reads the saved state, and raises OperationError and the driver's errors. The call itself raises
        OperationError for an invalid page token.
        """
        _refuse_unless_page_token(after)
        if self._check is None:
            return iter(())
        return self._store.document_mismatches(after, limit, least_seconds, namespaces)

    def definition_mismatches(
        self, after: str | None, limit: int | None, namespaces: Collection[str] = ()
    ) -> Iterator[StoredMismatch]:
        """Return an iterator over the differences in definitions and numbers of documents; empty if there is no check.

        Begin after the page token `after` (None: at the first mismatch), and return at most `limit` (None: all). If
        `namespaces` is not empty, return only their mismatches. Raises the same errors as `document_mismatches`.
        """
        _refuse_unless_page_token(after)
        if self._check is None:
            return iter(())
        return self._store.definition_mismatches(after, limit, namespaces)

    def _is_running(self) -> bool:
        return self._check is not None and self._check.figures.progress().phase is not Phase.IDLE

    def _request(
        self,
        document_filter: dict[str, Any] | None = None,
        source_filters: DocumentFilters = DocumentFilters(),
    ) -> Request:
        raw = bson.encode(document_filter) if document_filter else None
        return Request(
            self._settings.scope, self._settings.mode, raw, source_filters=source_filters
        )

    def _matches_options(self, record: CheckRecord) -> bool:
        """Return whether the saved check has the namespaces and the docCompareMethod of this process's options.

        The document filters and renamed namespaces of the command that began the check are ignored, because they are
        not options.
        """
        saved = replace(record.request, document_filter=None, source_filters=DocumentFilters())
        if saved.remapped:
            saved = replace(saved, scope=replace(saved.scope, renamed={}), remapped=False)
        return saved == self._request()

    def _refuse_others(self, record: CheckRecord) -> None:
        identities = (self._source.identity, self._destination.identity)
        if record.identities != identities:
            raise_all(rules.unknown_identities(self._source.facts, self._destination.facts))
            raise OperationError(
                OTHER_CHECK_SAVED,
                f"The saved check compares a source with the ID {record.identities[0]} with a destination with the ID "
                f"{record.identities[1]}. The source of this process has the ID {identities[0]}, and the destination "
                f"the ID {identities[1]}.",
            )
        if record.ended is None and not self._matches_options(record):
            raise OperationError(
                OTHER_CHECK_SAVED,
                "The saved check is not finished, and was started with other namespaces or another docCompareMethod.",
            )

    def _refuse_unfit(self, request: Request) -> None:
        """Raise OperationError if the clusters or the request do not meet the preconditions of a check.

        Reads the facts about both clusters again, because those from the start of the process may be out of date.
        """
        self._source, self._destination = refreshed(self._source), refreshed(self._destination)
        facts = self._source.facts, self._destination.facts
        raise_all(rules.violations(request.scope, *facts))
        bad = bad_patterns(self._destination.client, request.scope.namespaces, self._stop)
        if bad:
            raise OperationError(INVALID_REQUEST, f"{'; '.join(bad)}.")
        if request.remapped:
            self._refuse_collisions(request)
        if request.document_filter is not None:
            for cluster in (self._source, self._destination):
                text = refusal(cluster.client, _ANY, request.document_filter, self._stop)
                if text is not None:
                    raise OperationError(
                        INVALID_FILTER, f"The {cluster.name} refused the filter: {text}."
                    )
        for name, reason in bad_queries(self._source.client, request.source_filters, self._stop):
            raise OperationError(
                INVALID_FILTER, f"The source refused the filter of {name}: {reason}."
            )

    def _refuse_collisions(self, request: Request) -> None:
        """Raise OperationError if a renamed namespace takes the destination name of a selected namespace of the source.

        Reads the names of all collections and views of the source. Raises the driver's errors, and `Cancelled`.
        """
        names = request.scope.names
        listed = names_on(self._source.client, self._stop)
        taken = [each for each in listed if names.is_taken(each)]
        evaluator = filter_evaluator(self._source, self._destination)
        selection = Selection(request.scope.namespaces, evaluator.client, self._stop)
        found = (collision(each, names) for each in sorted(selection.of(taken)))
        raise_all((NAMESPACE_COLLISION, each) for each in found if each is not None)

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
        """Return the saved check with its saved figures loaded; it does not run yet.

        Raises the driver's errors, and `Cancelled`.
        """
        check = self._new_check()
        check.figures.recall()
        return check

    def _launch(self, check: Check) -> None:
        self._check = check
        self._spawn("check", self._run_check)

    def _run_check(self) -> None:
        """Run the check; the main function of its thread. An error ends the check with the verdict `incomplete`.

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
                "The check cannot be completed. The field `errorDescription` gives the reason and the remedy.",
                exc_info=error,
                extra={"error": kind.name, "errorDescription": description},
            )
            self._give_up(check, kind, description)

    def _give_up(self, check: Check, kind: ErrorKind, description: str) -> None:
        """End a check with the verdict `incomplete`. Save the verdict unless a restart may remove its cause.

        The progress shows the verdict before it is saved, because the save may fail for the same reason. If the save
        fails, only log it.
        """
        verdict = incomplete(kind, description)
        check.figures.given_up = verdict
        if kind in _PASSING:
            return
        try:
            self._store.update(verdict=verdict, ended=time())
        except (OperationError, PyMongoError) as error:
            _log.error(
                "Could not save the verdict of the check, for the reason in the field `error`. Remove the reason, and "
                "restart the process: the check then continues.",
                extra={"error": str(error)},
            )


def _remapped(request: Request, remap: Sequence[Document]) -> Request:
    """Return the request with the renamed namespaces of a command; unchanged if `remap` is empty.

    Raises OperationError if the renamed namespaces contradict each other, or if an option renames namespaces as well.
    """
    if not remap:
        return request
    if request.scope.renamed:
        raise OperationError(
            INVALID_REQUEST,
            "namespaceRemap: The field must not be combined with the option --dstNamespace.",
        )
    entries = entries_of(remap)
    raise_all((NAMESPACE_COLLISION, each) for each in contradictions(entries))
    scope = replace(request.scope, renamed=dict(entries))
    return replace(request, scope=scope, remapped=True)


def _this_process() -> CheckProcess:
    return CheckProcess(time(), __version__, socket.gethostname())


def _refuse_unless_page_token(after: str | None) -> None:
    if after is not None:
        try:
            read_page_token(after)
        except ValueError as error:
            raise OperationError(INVALID_REQUEST, f"after: {error}.") from error
