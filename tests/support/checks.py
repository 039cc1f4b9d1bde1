"""Runs checks of two clusters in the test process, in the same way as the verifier's service does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import Any

from tests.support.waiting import wait_for
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check import Check, begin
from verifier.compare.check_progress import Outcome, Verdict
from verifier.compare.context import Sides
from verifier.compare.listing import Listing
from verifier.compare.mismatch import DefinitionMismatch, DocumentMismatch
from verifier.compare.points import Point
from verifier.compare.record import Request
from verifier.compare.store import CheckStore
from verifier.compare.tuning import CheckTuning
from verifier.compare.verdict import incomplete
from verifier.runtime.errors import describe
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

METADATA = "__mdb_internal_checks"


class RunningCheck:
    """A check that `Checker.running` executes in a thread. `reached` contains the points that it has reached.

    `grace` is the time in seconds for which remaining differences are compared again at the end.
    """

    def __init__(
        self, clusters: tuple[Cluster, Cluster], request: Request, grace: float, stop: StopToken
    ) -> None:
        source, destination = clusters
        writer = ClusterWriter(destination.client, False, stop)
        self.store = CheckStore(destination.client, writer, METADATA, stop)
        self.store.load()
        begin(source, destination, request, self.store, stop)
        sides = Sides(source, destination, 2, 1 << 20, CheckTuning(least_pause=0.1))
        subject = Listing(source, destination, request.scope, stop)
        self.check = Check(subject, sides, self.store, grace, self._observe, stop)
        self.reached: set[str] = set()
        self._held: dict[str, threading.Event] = {}
        self.verdict: Verdict | None = None

    def _observe(self, point: Enum, subject: str) -> None:
        name = f"{point.value} {subject}"
        self.reached.add(name)
        if name in self._held:
            self._held[name].wait()

    @contextmanager
    def held_at(self, point: Point, subject: object = "") -> Iterator[None]:
        """Make each thread of the check that reaches the point with this subject wait until the block ends.

        The subject is, for example, a namespace or the number of a generation; it is empty at some points.
        """
        released = self._held[f"{point.value} {subject}"] = threading.Event()
        try:
            yield
        finally:
            released.set()

    def run(self) -> None:
        try:
            self.verdict = self.check.run()
        except Cancelled:
            raise
        except Exception as error:
            kind, description = describe(failures.named(error))
            self.verdict = incomplete(kind, description)

    def wait_until(self, point: Point, subject: object = "") -> None:
        name = f"{point.value} {subject}"
        wait_for(lambda: name in self.reached or self.verdict, name)
        assert name in self.reached, self.verdict

    def end(self) -> Verdict:
        """Tell the check that all writes to the clusters have ended; wait for its verdict, and return it."""
        self.check.no_more_writes()
        return self.wait_for_verdict()

    def wait_for_verdict(self) -> Verdict:
        return wait_for(lambda: self.verdict, "a verdict")

    def assert_passed(self) -> None:
        """Raise AssertionError, with the verdict and all mismatches as its text, if the check did not pass."""
        assert self.verdict is not None
        if self.verdict.outcome is not Outcome.PASSED:
            found = [*self.documents(), *self.definitions()]
            raise AssertionError("\n".join(map(str, [self.verdict, *found])))

    def documents(self) -> set[tuple[str, bytes]]:
        """Return the namespace and the key of each document mismatch; a key is a BSON document with only the `_id`."""
        return {
            (str(found.mismatch.namespace), found.mismatch.key)
            for found in self.store.document_mismatches(None, None, 0)
            if isinstance(found.mismatch, DocumentMismatch)
        }

    def definitions(self) -> set[tuple[str, str, str, str]]:
        """Return the namespace, difference, aspect and component of each definition mismatch.

        The fields of DefinitionMismatch have the same names.
        """
        return {
            (
                str(found.mismatch.namespace),
                found.mismatch.difference.value,
                found.mismatch.aspect.value,
                found.mismatch.component,
            )
            for found in self.store.definition_mismatches(None, None)
            if isinstance(found.mismatch, DefinitionMismatch)
        }


class Checker:
    """Starts checks of one pair of clusters."""

    def __init__(self, clusters: tuple[Cluster, Cluster]) -> None:
        self._clusters = clusters

    def of_source(self, **facts: Any) -> Checker:
        """Return a Checker that assumes these facts about the source, such as an older version."""
        source, destination = self._clusters
        return Checker((replace(source, facts=replace(source.facts, **facts)), destination))

    def of_newer_destination(self) -> Checker:
        """Return a Checker that treats the destination as a MongoDB 7.0 server."""
        source, destination = self._clusters
        facts = replace(destination.facts, version=(7, 0, 0))
        return Checker((source, replace(destination, facts=facts)))

    @contextmanager
    def running(self, request: Request = Request(), grace: float = 0.0) -> Iterator[RunningCheck]:
        """Run a check during the block, and stop it at the end of the block; see RunningCheck for `grace`."""
        stop = StopToken()
        with TaskGroup("test", stop) as group:
            check = RunningCheck(self._clusters, request, grace, group.stop)
            group.spawn("check", check.run)
            try:
                yield check
            finally:
                group.stop.stop("the end of the test")

    def verdict(self, request: Request = Request()) -> RunningCheck:
        """Run a check to its end, on clusters that receive no writes; return the ended check."""
        with self.running(request) as check:
            check.end()
        return check
