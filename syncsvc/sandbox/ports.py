"""Reserves TCP ports on loopback for servers that are killed and restarted.

While a server is down, any program could listen on its port. The other members of its replica set would then send their
vote requests to a foreign server, and a vote request of a later term makes any primary step down. So a port is reserved
until `Port.release` is called, or the process ends. Programs that choose their ports with this module, such as parallel
test runs, never choose a port that another one has reserved.

A reservation is a UDP socket that is bound to the same number. It does not get in the way of the server, because UDP
and TCP ports are independent of each other.
"""

import random
import socket

from syncsvc.sandbox.errors import SandboxError

HOST = "127.0.0.1"
# Below the kernel's default range of ephemeral ports, so that no client connection takes the port of a server that is
# down.
# Clear of 27017 and of the daemon's 27182.
_PORTS = range(28100, 32700)
_ATTEMPTS = 200


class Port:
    """A reserved port: no other program that uses this module chooses it before `release`."""

    def __init__(self, number: int) -> None:
        """Reserve the port with this number. Raises OSError if it is reserved or in use."""
        self.number = number
        self._reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            self._reservation.bind((HOST, number))
            _check_that_no_server_listens(number)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Let other programs choose the port; a no-op if it was released before."""
        self._reservation.close()


def reserve_port() -> Port:
    """Reserve a free port, and return it. Raises SandboxError if none is found."""
    # Not the shared generator: if that is seeded, all programs try the same ports.
    generator = random.SystemRandom()
    for number in generator.sample(_PORTS, k=min(_ATTEMPTS, len(_PORTS))):
        try:
            return Port(number)
        except OSError:
            continue
    raise SandboxError(
        f"No free port was found on {HOST} between {_PORTS.start} and {_PORTS.stop}. "
        "Stop some of the programs that listen there, then try again."
    )


def _check_that_no_server_listens(number: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, number))
