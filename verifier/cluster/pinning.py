"""Keeps commands that belong together, such as those of one cursor, on one server.

A cursor is known only to the server that opened it. The driver pins its own cursors. But each command that is sent with
`Database.command` may go to a different suitable server, for example if the connection string names several mongos.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from pymongo.errors import AutoReconnect
from pymongo.read_preferences import ReadPreference, _ServerMode
from pymongo.server_description import ServerDescription

# The driver's default for localThresholdMS, in seconds.
_LATENCY_WINDOW = 0.015

Address = tuple[str, int | None]
# The base class of the driver's read preferences, which has no public name.
ServerMode = _ServerMode

_current: ContextVar[Pin | None] = ContextVar("pin", default=None)


class Pin:
    """A pin that sends commands to one server: to `address` or, if that is None, to the server of the first command.

    The pin applies to the commands in `held` blocks; send them with its `read_preference`. Several threads may use
    a pin one after the other. Only clients whose server selector is `select` obey the pin.
    """

    def __init__(
        self, address: Address | None = None, read_preference: ServerMode = ReadPreference.PRIMARY
    ) -> None:
        self._address = address
        self.read_preference = read_preference

    @contextmanager
    def held(self) -> Iterator[None]:
        """Send the commands of this thread to the pinned server while the block runs.

        A generator must not yield inside the block: otherwise, the pin would also apply to commands of its caller.
        """
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def choose(self, servers: Sequence[ServerDescription]) -> list[ServerDescription]:
        """Return only the pinned server. If no server is pinned yet, pin one of the nearest servers first.

        Raises AutoReconnect if the pinned server is no longer among the suitable `servers`.
        """
        if self._address is None:
            self._address = random.choice(_nearest(servers)).address
        found = [each for each in servers if each.address == self._address]
        if not found:
            # Fail immediately: waiting for the server would not bring its cursors back.
            raise AutoReconnect(
                f"the server {_shown(self._address)} is down, or no longer has the needed role, such as primary"
            )
        return found


def select(servers: Sequence[ServerDescription]) -> list[ServerDescription]:
    """Return only the pinned server if this thread holds a pin; otherwise, return all of `servers`.

    Use this function as the `server_selector` of a client. `servers` are the servers that suit the command.
    """
    pin = _current.get()
    return list(servers) if pin is None or not servers else pin.choose(servers)


def _nearest(servers: Sequence[ServerDescription]) -> list[ServerDescription]:
    """Return the servers whose round-trip time is at most 15 ms longer than that of the fastest server."""
    smallest = min(map(_latency, servers))
    return [each for each in servers if _latency(each) <= smallest + _LATENCY_WINDOW]


def _latency(server: ServerDescription) -> float:
    return server.round_trip_time or 0.0


def _shown(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
