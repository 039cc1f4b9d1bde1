"""Measures the round-trip time to a cluster."""

from __future__ import annotations

from time import monotonic

from verifier.cluster.connect import Client
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken

# The number of pings. Only the shortest one counts, because a busy server or process can delay the others.
_PINGS = 3


def round_trip(client: Client, stop: StopToken) -> float:
    """Return the round-trip time to the primary or mongos, in seconds: the shortest of a few pings.

    Temporary errors are retried. Raises the driver's other errors, and `Cancelled`.
    """

    def ping() -> float:
        began = monotonic()
        client.admin.command("ping")
        return monotonic() - began

    return min(read(ping, stop) for _ in range(_PINGS))
