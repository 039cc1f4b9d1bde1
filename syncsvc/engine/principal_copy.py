"""Copies users and roles (principals) to the destination at the commit or on request, and drops them in a reset.

Only servers can write `admin.system.users`. So the documents are saved in temporary collections, from which the server
adds them (`_mergeAuthzCollections`, as for `mongorestore`). The server silently leaves existing users and roles
unchanged. WARNING: the temporary collections hold credentials, so they must be dropped after every attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import USER_OR_ROLE_NOT_COPIED
from syncsvc.principals.comparison import (
    Comparison,
    Identity,
    Kind,
    Listing,
    Principal,
    compare,
    in_order_of_removal,
    outdated,
    violations,
)
from syncsvc.principals.listing import DATABASE, listing, read_again
from syncsvc.saved.batches import batches
from syncsvc.saved.journal import Entry
from verifier.cluster import failures
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.runtime.errors import OperationError, raise_all
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# The names of the temporary collections begin with these prefixes. The collections are in the same database as the
# users; on a sharded cluster, this database is on the config servers.
TEMPORARY = {Kind.USER: "syncsvc_temp_users_", Kind.ROLE: "syncsvc_temp_roles_"}
_DROP = {Kind.USER: "dropUser", Kind.ROLE: "dropRole"}
# The codes of the server errors UserNotFound and RoleNotFound.
_GONE = (11, 31)
_SHOWN = 10


class PrincipalCopy:
    """Copies the users and roles that the start options select (`run`), and drops them again (`remove`)."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._writer = context.destination_writer
        self._client = context.destination_client
        self._created = context.principals
        self._stop = stop
        # The names of the temporary collections contain the UUID of the run's fence, so that other syncs with the same
        # destination use other names, and do not drop the collections of this sync.
        fence = context.run.record.fence.hex
        self._temporary = {kind: f"{prefix}{fence}" for kind, prefix in TEMPORARY.items()}

    def run(self, command: Entry | None = None) -> None:
        """Copy the selected users and roles, and check that the destination has them.

        Can be repeated until users may write to the destination. Users and roles that an earlier copy has created are
        replaced or dropped if they differ from the source, or if they have or inherit such a role. The others are left
        unchanged, so that clients that have logged in as these users stay logged in. `command` is the journal entry of
        the operator's request; None if the commit copies. It is added to the journal before the first user or role is
        changed, so it stays there if the copy then fails.

        If some users or roles cannot be copied, raises OperationError before anything is changed. If the check fails,
        raises OperationError UserOrRoleNotCopied. Also raises the driver's errors.
        """
        self.drop_temporary()
        source, destination = self._listings()
        created = self._created.on(destination)
        comparison = self._compare(source, destination.without(created))
        raise_all(violations(comparison))
        # The counts of an earlier copy are wrong as soon as this one changes something.
        self._context.run.update(command, principals=None)
        self._replace(created, comparison.copied)
        counts = comparison.counts
        _log.info("Users and roles were copied.", extra=asdict(counts))
        self._context.run.update(principals=counts)

    def remove(self) -> None:
        """Drop the temporary collections, and the users and roles that the sync has created and may drop.

        See `CreatedPrincipals.on`: for example, users that were changed since their creation are kept.
        """
        self.drop_temporary()
        self._remove(self._created.on(read(lambda: listing(self._client), self._stop)))
        self._created.forget()

    def drop_temporary(self) -> None:
        """Drop the temporary collections of this sync, if they exist.

        While a copy runs, only the copy itself may call this: the server adds users and roles from these collections.
        """
        for name in self._temporary.values():
            self._run_unless(failures.DROPPED, DATABASE, {"drop": name})

    def _listings(self) -> tuple[Listing, Listing]:
        """Return the current users and roles of the source and of the destination."""
        # The source is read at the time of this no-op or later, so a former primary that missed the newest changes
        # cannot answer.
        now = append_note(self._context.source_client, self._stop)
        source = read(lambda: listing(self._context.source_client, now), self._stop)
        return source, read(lambda: listing(self._client), self._stop)

    def _compare(self, source: Listing, destination: Listing) -> Comparison:
        options = self._context.run.record.options.users_and_roles
        assert options is not None
        return compare(options, source, destination)

    def _remove(self, principals: Iterable[Principal]) -> None:
        """Drop these principals, except those that were changed since they were listed.

        Roles that these changed principals have or inherit are not dropped either.
        """
        # Dropping a role would also revoke it from the changed principals that have it.
        kept_roles: set[Identity] = set()
        for each in in_order_of_removal(principals):
            self._stop.check()
            found = read(partial(read_again, self._client, each), self._stop)
            if found is not None and (
                each.identity in kept_roles or found.fingerprint != each.fingerprint
            ):
                kept_roles |= found.roles
                continue
            self._drop(each)
            self._context.observe(Point.PRINCIPAL_DROPPED, str(each.identity))

    def _replace(self, created: Collection[Principal], wanted: Collection[Principal]) -> None:
        """Make the destination have the principals `wanted` instead of `created`; drop only the outdated ones."""
        dropped = {each.identity: each for each in outdated(created, wanted)}
        self._remove(dropped.values())
        kept = {each.identity: each for each in created if each.identity not in dropped}
        self._created.forget(kept.values())
        if missing := [each for each in wanted if each.identity not in kept]:
            # Save the principals before creating them, so that a reset finds them even if this process is killed.
            self._created.add(missing)
            self._context.observe(Point.PRINCIPALS_SAVED, "")
            self._confirm(wanted, self._add(missing))

    def _add(self, principals: Iterable[Principal]) -> Timestamp:
        """Let the destination create the principals that it lacks, and return a cluster time after that."""
        try:
            for kind, name in self._temporary.items():
                self._save(name, [each for each in principals if each.kind is kind])
            self._context.observe(Point.PRINCIPALS_STAGED, "")
            time = self._merge()
            self._context.observe(Point.PRINCIPALS_ADDED, "")
        finally:
            self.drop_temporary()
        return time

    def _save(self, collection: str, principals: Iterable[Principal]) -> None:
        statements = (
            {"q": {"_id": _id(each)}, "u": _raw(each), "upsert": True} for each in principals
        )
        for batch in batches(statements):
            reply = self._writer.run(DATABASE, {"update": collection, "updates": batch})
            if reply.get("writeErrors"):
                codes = sorted({each["code"] for each in reply["writeErrors"]})
                raise RuntimeError(
                    f"the destination refused to save copied users or roles (error codes: {codes})"
                )

    def _merge(self) -> Timestamp:
        command: dict[str, Any] = {
            "_mergeAuthzCollections": 1,
            "tempUsersCollection": f"{DATABASE}.{self._temporary[Kind.USER]}",
            "tempRolesCollection": f"{DATABASE}.{self._temporary[Kind.ROLE]}",
            # An empty name means all databases.
            "db": "",
            # False: do not drop other users and roles.
            "drop": False,
        }
        _, time = self._writer.run_timed(DATABASE, command)
        return time

    def _confirm(self, principals: Iterable[Principal], time: Timestamp) -> None:
        """Raise OperationError UserOrRoleNotCopied unless the destination has all these principals, unchanged.

        The destination may also have others. Its principals are read as of the cluster time `time` or later.
        """
        found = _fingerprints(read(lambda: listing(self._client, time), self._stop).principals)
        wanted = _fingerprints(principals)
        if missing := [str(each) for each in sorted(wanted) if found.get(each) != wanted[each]]:
            raise OperationError(
                USER_OR_ROLE_NOT_COPIED,
                f"Users and roles that are missing or different on the destination ({len(missing)}): "
                f"{', '.join(missing[:_SHOWN])}.",
            )

    def _drop(self, principal: Principal) -> None:
        identity = principal.identity
        self._run_unless(_GONE, identity.database, {_DROP[principal.kind]: identity.name})

    def _run_unless(
        self, codes: Container[int | None], database: str, command: dict[str, Any]
    ) -> None:
        """Run a command, and ignore server errors with one of these codes."""
        try:
            self._writer.run(database, command)
        except OperationFailure as error:
            if error.code not in codes:
                raise


def _id(principal: Principal) -> str:
    return f"{principal.identity.database}.{principal.identity.name}"


def _raw(principal: Principal) -> RawBSONDocument:
    return RawBSONDocument(principal.raw)


def _fingerprints(principals: Iterable[Principal]) -> Mapping[Identity, str]:
    return {each.identity: each.fingerprint for each in principals}
