"""Compares the users and roles of both clusters, to find those that a commit would copy or a reset would drop.

Also decides whether a copy on request is possible. The module `syncsvc.engine.principal_copy` copies users and roles.
"""

from __future__ import annotations

from dataclasses import replace

from syncsvc import errors
from syncsvc.principals.comparison import Comparison, Listing, compare, outdated, violations
from syncsvc.principals.listing import listing
from syncsvc.running.process import ProcessContext
from syncsvc.saved.created_principals import CreatedPrincipals
from syncsvc.saved.run_store import RunStore
from syncsvc.state import Phase
from verifier.cluster import failures
from verifier.cluster.reading import read
from verifier.runtime.errors import OperationError, raise_all


class Principals:
    """The current users and roles on the clusters of a run, read-only. Every method can raise OperationError."""

    def __init__(self, store: RunStore, process: ProcessContext) -> None:
        self._store = store
        self._process = process

    def compare(self) -> Comparison | None:
        """Return the comparison of the users and roles of both clusters; None if the sync copies no users and roles.

        Until users may write to the destination, users and roles that the sync has created there and may drop (see
        `CreatedPrincipals.on`) count as missing if they, or roles that they have or inherit, differ from the source,
        because a commit replaces them.
        """
        record = self._store.record
        options = record.options.users_and_roles
        if options is None:
            return None
        with failures.named_errors():
            source, destination = self._listing(record.source), self._listing(record.destination)
            if not record.can_write:
                created = self._saved().on(destination)
                destination = destination.without(outdated(created, source.principals))
        return compare(options, source, destination)

    def refuse_commit(self) -> None:
        """Raise OperationError if this instance is the coordinator and cannot copy the users and roles."""
        found = self.compare() if self._store.record.coordinates else None
        if found is not None:
            raise_all(violations(found))

    def refuse_copy(self) -> None:
        """Raise OperationError InvalidState if users and roles cannot be copied on request now.

        They can be copied if the start options select them, this instance is the coordinator, and the sync has saved
        its start position. The caller must check that the state is RUNNING.
        """
        record = self._store.record
        if record.options.users_and_roles is None:
            raise not_requested()
        if not record.coordinates:
            raise OperationError(
                errors.INVALID_STATE,
                f"A copy of users and roles must be sent to the coordinator {record.coordinator}.",
            )
        if record.start is None:
            # Until the start position is saved, a restart deletes the saved names of all users and roles that the sync
            # has created.
            raise OperationError(
                errors.INVALID_STATE,
                "The sync is still being initialized. Send the command again when progress.info in GET "
                f'/api/v1/progress is no longer "{Phase.INITIALIZING.value}".',
            )

    def created(self) -> tuple[str, ...]:
        """Return the sorted names of the users and roles on the destination that a reset would drop.

        The sync created them, and they have not changed since. Left out are roles that other users or roles have or
        inherit, and the users as which this process logs in.
        """
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
        metadata, writer = process.metadata(record.home), process.saver(record.home)
        return CreatedPrincipals(metadata, writer, record.reversals, process.stop)


# The general remedy, to wait for another state, does not help: a sync keeps the options of its start.
_NOT_REQUESTED = replace(
    errors.INVALID_STATE,
    remedy="Nothing was changed. To copy users and roles, start a sync with this option. An existing sync must be "
    "reset first (POST /api/v1/reset). If it is committed, create the users and roles on the destination yourself.",
)


def not_requested() -> OperationError:
    """Return the error for a request about users and roles if no sync copies them."""
    return OperationError(
        _NOT_REQUESTED,
        "There is no sync that was started with usersAndRoles.copy true, so no users and roles are compared or copied.",
    )
