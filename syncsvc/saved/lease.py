"""The lease of an instance: the daemon that holds it is the active one of several daemons with `--standby`.

A lease is a document in the metadata database. Its holder renews it every second. Once it has expired by the clock
of the server, another daemon may take it.

The lease only decides when a daemon takes a sync over; it does not protect the data. A former holder that still runs
cannot save the run record, because the record names its new owner; and the destination refuses late writes of the
former holder (`syncsvc.saved.fence`).

A daemon takes the lease under a new random name each time, so it notices if another daemon was active in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import pymongo

from syncsvc.metadata import Metadata
from syncsvc.options import CLUSTERS
from verifier.cluster.writer import PRIMARY_ONLY, ClusterWriter

LEASES = "leases"
# The cluster that holds the leases. It cannot depend on the sync, because no sync has begun when a lease is first
# taken. With `--standby`, this cluster is the destination of every sync.
HOME = CLUSTERS[1]

# How long one call may take, in seconds: so long that it can open a new connection over a link with a high latency, and
# so short that the holder can repeat a lost renewal before its lease expires.
_PATIENCE = 2.0
_FIELDS = ("holder", "host", "address", "since", "expires", "progress")
_UNHELD: Any = {"$eq": [{"$ifNull": ["$holder", None]}, None]}
_EXPIRED: Any = {"$lte": ["$expires", "$$NOW"]}


@dataclass(frozen=True)
class Lease:
    """The saved lease of an instance: its holder and its expiry. All times are by the server's clock, in UTC."""

    # The random name of the holder.
    holder: str
    # The machine on which the holder runs, and the address and port of its API there.
    host: str
    address: str
    # When the holder took the lease, and when it expires unless it is renewed.
    since: datetime
    expires: datetime
    # Whether the lease had expired when it was read.
    expired: bool = False
    # The progress that the holder saved at its last renewal; None before the first one.
    progress: Mapping[str, Any] | None = None

    @property
    def where(self) -> str:
        """Return the host and API address of the holder, as a part of a sentence for operators."""
        return f"on the host {self.host}, where its API listens on {self.address}"


class LeaseKeeper:
    """Reads, takes, renews and releases the lease of an instance, under one random name of the holder.

    `host` and `address` say where the API of this process is. A lease is valid for `seconds`. Each call takes at most
    two seconds, and raises the driver's errors, even temporary ones.
    """

    def __init__(
        self,
        metadata: Metadata,
        writer: ClusterWriter,
        instance: str,
        host: str,
        address: str,
        seconds: float,
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._instance = instance
        self._host, self._address = host, address
        self._valid_ms = int(1000 * seconds)
        self._name = uuid4().hex

    def read(self) -> Lease | None:
        """Return the lease, which may have expired; None if it was never taken or has been released."""
        shown = {**dict.fromkeys(_FIELDS, True), "expired": _EXPIRED}
        with pymongo.timeout(_PATIENCE):
            leases = self._metadata[LEASES]
            return _lease(leases.find_one({"_id": self._instance}, shown))

    def claim(self) -> Lease:
        """Take the lease if it is free or has expired. Return the lease, which another process may hold.

        Call this only directly after a `read` which shows that the lease can be taken: a claim that is delayed in the
        network can take the lease for a process that has already ended.
        """
        query = {"_id": self._instance}
        free = {"$or": [_UNHELD, _EXPIRED]}
        update = [{"$replaceWith": {"$cond": [free, self._taken(), "$$ROOT"]}}]
        lease = self._modify({"query": query, "update": update, "upsert": True})
        assert lease is not None
        return lease

    def renew(self, progress: Mapping[str, Any]) -> Lease | None:
        """Extend the lease and save `progress` in it. Return the lease; None if this process no longer holds it.

        An expired lease is extended as well, if no other process has taken it. The write needs no majority: if it is
        rolled back, another process may take the lease earlier, which only causes a takeover.
        """
        changed = {"expires": self._end(), "progress": {"$literal": dict(progress)}}
        return self._modify(
            {
                "query": self._held(),
                "update": [{"$set": changed}],
                "writeConcern": PRIMARY_ONLY,
            }
        )

    def release(self) -> None:
        """Delete the lease, so that another process can take it at once; a no-op if this process does not hold it."""
        deletes = [{"q": self._held(), "limit": 1}]
        self._run({"delete": LEASES, "deletes": deletes})

    def holds(self, lease: Lease) -> bool:
        return lease.holder == self._name

    def _held(self) -> dict[str, Any]:
        return {"_id": self._instance, "holder": self._name}

    def _taken(self) -> dict[str, Any]:
        """Return an update pipeline's expression for the lease document, with this process as the holder."""
        texts = {"holder": self._name, "host": self._host, "address": self._address}
        literals = {name: {"$literal": text} for name, text in texts.items()}
        return {"_id": "$_id", **literals, "since": "$$NOW", "expires": self._end()}

    def _end(self) -> dict[str, Any]:
        return {"$add": ["$$NOW", self._valid_ms]}

    def _modify(self, change: dict[str, Any]) -> Lease | None:
        return _lease(self._run({"findAndModify": LEASES, **change, "new": True})["value"])

    def _run(self, command: dict[str, Any]) -> dict[str, Any]:
        with pymongo.timeout(_PATIENCE):
            return self._writer.run(self._metadata.name, command, retried=False)


def _lease(found: Mapping[str, Any] | None) -> Lease | None:
    if found is None:
        return None
    # Ignore unknown fields: a daemon of a later version may save more fields.
    return Lease(**{name: found[name] for name in (*_FIELDS, "expired") if name in found})
