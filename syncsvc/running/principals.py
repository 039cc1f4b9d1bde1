"""Compares the users and roles of both clusters, to find those that a commit would copy or a reset would drop."""

from __future__ import annotations

from syncsvc.principals.comparison import Comparison, Listing, compare, violations
from syncsvc.principals.listing import listing
from syncsvc.running.process import ProcessContext
from syncsvc.saved.created_principals import CreatedPrincipals
from syncsvc.saved.run import RunStore
from verifier.cluster import failures
from verifier.cluster.reading import read
from verifier.runtime.errors import raise_all


class Principals:
    """The current users and roles on the clusters of a run, read-only. Every method raises OperationError."""

    def __init__(self, store: RunStore, process: ProcessContext) -> None:
        self._store = store
        self._process = process

    def compare(self) -> Comparison | None:
        """Compare both clusters as a commit would do now; None if the sync copies no users and roles.

        Principals that an earlier attempt of the commit has created count as missing, because a commit replaces them.
        """
        record = self._store.record
        options = record.options.users_and_roles
        if options is None:
            return None
        with failures.named_errors():
            source, destination = self._listing(record.source), self._listing(record.destination)
            if not record.can_write:
                destination = destination.without(self._saved().on(destination))
        return compare(options, source, destination)

    def refuse_commit(self) -> None:
        """Raise OperationError if this instance is the coordinator and cannot copy the users and roles."""
        found = self.compare() if self._store.record.coordinates else None
        if found is not None:
            raise_all(violations(found))

    def created(self) -> tuple[str, ...]:
        """Return the sorted names of the users and roles that the sync has created on the destination."""
        record = self._store.record
        if record.options.users_and_roles is None:
            return ()
        with failures.named_errors():
            found = self._saved().on(self._listing(record.destination))
        return tuple(sorted(str(each.identity) for each in found))

    def _listing(self, cluster: str) -> Listing:
        client = self._process.clusters[cluster].client
        return read(lambda: listing(client), self._process.stop)

    def _saved(self) -> CreatedPrincipals:
        process, record = self._process, self._store.record
        home = record.options.destination
        client, writer = process.clusters[home].client, process.saver(home)
        return CreatedPrincipals(client, writer, record.reversals, process.stop)
