"""Copies users and roles to the destination at the commit, and drops them in a reset.

Only servers can write `admin.system.users`. So the documents are saved in temporary collections, from which the server
adds them (`_mergeAuthzCollections`, as for `mongorestore`). The server silently leaves existing users and roles
unchanged. WARNING: the temporary collections hold credentials, so they must be dropped after every attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict
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
    Principal,
    compare,
    in_order_of_removal,
    violations,
)
from syncsvc.principals.listing import DATABASE, listing
from syncsvc.saved.batches import batches
from verifier.cluster import failures
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.runtime.errors import OperationError, raise_all
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# The temporary collections, in the database of the users: on a sharded cluster, this is on the config servers, too.
TEMPORARY = {Kind.USER: "syncsvc_temp_users", Kind.ROLE: "syncsvc_temp_roles"}
_DROP = {Kind.USER: "dropUser", Kind.ROLE: "dropRole"}
# UserNotFound and RoleNotFound.
_GONE = (11, 31)
_SHOWN = 10


class PrincipalCopy:
    """Copies the users and roles that the start options select, in the cut-over, and drops them again in a reset."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._writer = context.destination_writer
        self._client = context.destination_client
        self._created = context.principals
        self._stop = stop

    def run(self) -> None:
        """Copy the principals, and check that the destination has them.

        Can be repeated until users may write to the destination: it first drops the principals that an earlier attempt
        has created, because the source may have changed since. Raises OperationError before anything is copied if there
        are `syncsvc.principals.comparison.violations`, and UserOrRoleNotCopied if the check fails.
        """
        self.remove()
        comparison = self._compare()
        raise_all(violations(comparison))
        if comparison.copied:
            # Saved first, so that a reset finds them even if this process is killed.
            self._created.add(comparison.copied)
            self._context.observe(Point.PRINCIPALS_SAVED, "")
            self._confirm(comparison.copied, self._add(comparison.copied))
        counts = comparison.counts
        _log.info("Users and roles were copied.", extra=asdict(counts))
        self._context.run.update(principals=counts)

    def remove(self) -> None:
        """Drop the temporary collections, and the principals that the sync created and that were not changed since."""
        self._drop_temporary()
        found = self._created.on(read(lambda: listing(self._client), self._stop))
        for each in in_order_of_removal(found):
            self._stop.check()
            self._drop(each)
            self._context.observe(Point.PRINCIPAL_DROPPED, str(each.identity))
        self._created.forget()

    def _compare(self) -> Comparison:
        options = self._context.run.record.options.users_and_roles
        assert options is not None
        # The source is read after this note, so a former primary that missed the newest changes cannot answer.
        now = append_note(self._context.source_client, self._stop)
        source = read(lambda: listing(self._context.source_client, now), self._stop)
        destination = read(lambda: listing(self._client), self._stop)
        return compare(options, source, destination)

    def _add(self, principals: Iterable[Principal]) -> Timestamp:
        """Create the principals on the destination. Return the cluster time at which they exist."""
        try:
            for kind, name in TEMPORARY.items():
                self._save(name, [each for each in principals if each.kind is kind])
            self._context.observe(Point.PRINCIPALS_STAGED, "")
            time = self._merge()
            self._context.observe(Point.PRINCIPALS_ADDED, "")
        finally:
            self._drop_temporary()
        return time

    def _save(self, collection: str, principals: Iterable[Principal]) -> None:
        statements = (
            {"q": {"_id": _id(each)}, "u": _raw(each), "upsert": True} for each in principals
        )
        for batch in batches(statements):
            reply = self._writer.run(DATABASE, {"update": collection, "updates": batch})
            if reply.get("writeErrors"):
                codes = sorted({each["code"] for each in reply["writeErrors"]})
                raise RuntimeError(f"the server refused to save users or roles: codes {codes}")

    def _merge(self) -> Timestamp:
        command: dict[str, Any] = {
            "_mergeAuthzCollections": 1,
            "tempUsersCollection": f"{DATABASE}.{TEMPORARY[Kind.USER]}",
            "tempRolesCollection": f"{DATABASE}.{TEMPORARY[Kind.ROLE]}",
            # Of all databases.
            "db": "",
            # Whether to drop all other users and roles.
            "drop": False,
        }
        time: Timestamp = self._writer.run(DATABASE, command)["operationTime"]
        return time

    def _confirm(self, principals: Iterable[Principal], time: Timestamp) -> None:
        """Raise OperationError UserOrRoleNotCopied unless the destination has exactly these principals."""
        found = _fingerprints(read(lambda: listing(self._client, time), self._stop).principals)
        wanted = _fingerprints(principals)
        if missing := [str(each) for each in sorted(wanted) if found.get(each) != wanted[each]]:
            raise OperationError(
                USER_OR_ROLE_NOT_COPIED,
                f"Missing or different on the destination ({len(missing)}): {', '.join(missing[:_SHOWN])}.",
            )

    def _drop_temporary(self) -> None:
        for name in TEMPORARY.values():
            self._run_unless(failures.DROPPED, DATABASE, {"drop": name})

    def _drop(self, principal: Principal) -> None:
        identity = principal.identity
        self._run_unless(_GONE, identity.database, {_DROP[principal.kind]: identity.name})

    def _run_unless(
        self, codes: Container[int | None], database: str, command: dict[str, Any]
    ) -> None:
        """Run a command; do nothing if the server refuses it with one of these codes."""
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
