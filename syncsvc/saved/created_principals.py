"""Saves the users and roles that the sync has created on the destination, so that no others are replaced or dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncsvc.metadata import Metadata
from syncsvc.principals.comparison import Identity, Listing, Principal, removable
from syncsvc.saved.rows import Rows
from verifier.cluster import rawbson
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The metadata collection for the users and roles that the sync has created.
PRINCIPALS = "principals"


class CreatedPrincipals:
    """The saved names and fingerprints of the principals (users and roles) that the sync creates, without credentials.

    Each principal is saved here before it is created. `reversals` is the number of reversals so far: each direction
    saves its own principals. Every method raises the errors of `Rows`.
    """

    def __init__(
        self, metadata: Metadata, writer: ClusterWriter, reversals: int, stop: StopToken
    ) -> None:
        self._rows = Rows(metadata, writer, PRINCIPALS, stop)
        self._reversals = reversals

    def add(self, principals: Iterable[Principal]) -> None:
        self._rows.save(map(self._statement, principals))

    def forget(self, kept: Iterable[Principal] = ()) -> None:
        """Delete the saved names and fingerprints of all principals of this direction, except those in `kept`."""
        others = {"_id": {"$nin": [self._key(each.identity) for each in kept]}}
        self._rows.delete_all({**self._mine, **others})

    def on(self, listing: Listing) -> list[Principal]:
        """Return the principals in a cluster's `listing` that the sync has created there and may drop.

        The result leaves out principals that users have changed since their creation, roles that principals outside the
        result have or inherit, and the users as which this process logs in.
        """
        saved = self._load()
        created = (
            each for each in listing.principals if saved.get(each.identity) == each.fingerprint
        )
        return removable(created, listing)

    def _load(self) -> dict[Identity, str]:
        rows = map(rawbson.decode, self._rows.newest(filter=self._mine))
        return {
            Identity(row["kind"], row["database"], row["name"]): row["fingerprint"] for row in rows
        }

    @property
    def _mine(self) -> dict[str, Any]:
        return {"reversals": self._reversals}

    def _statement(self, principal: Principal) -> dict[str, Any]:
        key = self._key(principal.identity)
        row = {"_id": key, **key, "fingerprint": principal.fingerprint}
        return {"q": {"_id": key}, "u": row, "upsert": True}

    def _key(self, identity: Identity) -> dict[str, Any]:
        return {
            "kind": identity.kind,
            "database": identity.database,
            "name": identity.name,
            "reversals": self._reversals,
        }
