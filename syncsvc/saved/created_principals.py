"""The users and roles that the sync has created on the destination, so that a reset drops exactly these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncsvc.principals.comparison import Identity, Listing, Principal, removable
from syncsvc.saved.batches import save_rows
from syncsvc.saved.emptying import delete_rows
from syncsvc.saved.run import METADATA_DATABASE, PRINCIPALS
from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.newest import newest_time, read_after
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken


class CreatedPrincipals:
    """The saved names and fingerprints of the principals that the sync creates; each is saved before it is created.

    They hold no credentials. `reversals` is the number of reversals so far: each direction has its own rows. Every
    method raises the driver's errors.
    """

    def __init__(
        self, client: Client, writer: ClusterWriter, reversals: int, stop: StopToken
    ) -> None:
        self._client = client
        self._writer = writer
        self._reversals = reversals
        self._stop = stop

    def add(self, principals: Iterable[Principal]) -> None:
        save_rows(self._writer, PRINCIPALS, map(self._statement, principals))

    def forget(self) -> None:
        delete_rows(self._client, self._writer, PRINCIPALS, self._mine, self._stop)

    def on(self, listing: Listing) -> list[Principal]:
        """Return the principals in the listing of a cluster that the sync has created there, and may drop.

        A principal that users have changed since is left out, and so is a role that they have granted to others since.
        """
        saved = self._load()
        created = (
            each for each in listing.principals if saved.get(each.identity) == each.fingerprint
        )
        return removable(created, listing)

    def _load(self) -> dict[Identity, str]:
        rows = map(rawbson.decode, read(self._read, self._stop))
        return {
            Identity(row["kind"], row["database"], row["name"]): row["fingerprint"] for row in rows
        }

    def _read(self) -> list[bytes]:
        time = newest_time(lambda command: self._writer.run(METADATA_DATABASE, command), PRINCIPALS)
        return read_after(time, self._client, METADATA_DATABASE, PRINCIPALS, filter=self._mine)

    @property
    def _mine(self) -> dict[str, Any]:
        return {"reversals": self._reversals}

    def _statement(self, principal: Principal) -> dict[str, Any]:
        identity = principal.identity
        key = {
            "kind": identity.kind,
            "database": identity.database,
            "name": identity.name,
            "reversals": self._reversals,
        }
        row = {"_id": key, **key, "fingerprint": principal.fingerprint}
        return {"q": {"_id": key}, "u": row, "upsert": True}
