"""Measures the duration of requests without other clients, and while 500 slow clients are connected.

A slow client sends one byte of a request, or of a TLS handshake, now and then. If there are too many connections, the
process closes those that were idle for the longest time; a slow client notices this when it sends its next byte, and
connects again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import requests

from tests.bench.clusters import cluster
from tests.bench.daemon import free_port, wait_for
from tests.bench.processes import python
from tests.support.certificates import make_certificates

CLIENTS = 500
_REQUESTS = 200
# The number of slow clients that send a byte in each round, and the pause between two rounds in seconds.
_AT_A_TIME = 50
_PAUSE = 0.05
_BEGINNINGS = {
    "http": b"POST /api/v1/commit HTTP/1.1\r\nHost: localhost\r\n",
    "https": b"\x16\x03\x01",
}


@dataclass(frozen=True)
class Latency:
    """The durations of `requests` requests, each on a new connection, while `clients` slow clients are connected."""

    scheme: str
    clients: int
    requests: int
    median_ms: float
    p99_ms: float
    longest_ms: float
    # How often slow clients had to reconnect, because the process had closed their connections.
    connections: int


def benchmark(say: Callable[[str], None]) -> list[Latency]:
    found = []
    with cluster("source") as source, cluster("destination") as destination, ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        server = make_certificates(folder).server
        server.chmod(0o600)
        protection = {
            "http": (),
            "https": ("--tlsCertFile", str(server), "--tlsKeyFile", str(server)),
        }
        for scheme, options in protection.items():
            port = free_port()
            clusters = ("--cluster0", source.uri, "--cluster1", destination.uri)
            command = ("-m", "syncsvc", *clusters, "--port", str(port), *options)
            with python(command), _session(folder / "authority.pem") as session:
                url = f"{scheme}://127.0.0.1:{port}/api/v1/progress"
                wait_for(lambda: _answers(session, url), 0.1)
                for clients in (0, CLIENTS):
                    found.append(_measure(session, url, scheme, port, clients))
                    say(f"crowd: {scheme} with {clients} slow clients: measured")
    return found


def table(found: list[Latency]) -> str:
    """Return a text table of the latencies."""
    lines = ["requests  slow clients  reconnected  median ms  99 % ms  longest ms"]
    for each in found:
        lines.append(
            f"{each.scheme:8}  {each.clients:12}  {each.connections:11}  {each.median_ms:9.1f}  {each.p99_ms:7.1f}  "
            f"{each.longest_ms:10.1f}"
        )
    return "\n".join(lines)


def document(found: list[Latency]) -> dict[str, Any]:
    return {"title": "crowd", "latencies": [asdict(each) for each in found]}


@contextmanager
def _session(authority: Path) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(authority)
        # Each request uses a new connection, as curl does.
        session.headers["Connection"] = "close"
        yield session


def _answers(session: requests.Session, url: str) -> bool:
    try:
        return bool(session.get(url).json()["progress"]["state"] == "IDLE")
    except requests.ConnectionError:
        return False


def _measure(session: requests.Session, url: str, scheme: str, port: int, clients: int) -> Latency:
    times = []
    with _Crowd(port, clients, _BEGINNINGS[scheme]) as crowd:
        for _ in range(_REQUESTS):
            began = monotonic()
            session.get(url).raise_for_status()
            times.append((monotonic() - began) * 1000)
    cut = quantiles(times, n=100)[-1]
    return Latency(scheme, clients, len(times), median(times), cut, max(times), crowd.connections)


class _Crowd:
    """Slow clients, which a thread keeps connected during the `with` block."""

    def __init__(self, port: int, clients: int, beginning: bytes) -> None:
        self._port, self._beginning = port, beginning
        self._end = threading.Event()
        self._sockets: list[tuple[socket.socket, int]] = []
        self._clients = clients
        self._thread = threading.Thread(target=self._run)
        self.connections = 0

    def __enter__(self) -> _Crowd:
        self._sockets = [(self._connect(), 0) for _ in range(self._clients)]
        self.connections = 0
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        for each, _ in self._sockets:
            each.close()

    def _connect(self) -> socket.socket:
        self.connections += 1
        return socket.create_connection(("127.0.0.1", self._port))

    def _run(self) -> None:
        first = 0
        while self._clients and not self._end.wait(_PAUSE):
            for number in range(first, first + _AT_A_TIME):
                self._sockets[number] = self._sent(*self._sockets[number])
            first = (first + _AT_A_TIME) % self._clients

    def _sent(self, client: socket.socket, sent: int) -> tuple[socket.socket, int]:
        """Send the next byte of a client, or connect the client again if its connection was closed.

        Return the client's socket, and the number of bytes sent on it. A client that has sent all its bytes sends
        nothing, so it may not notice that its connection was closed.
        """
        try:
            client.send(self._beginning[sent : sent + 1])
            return client, min(sent + 1, len(self._beginning))
        except OSError:
            client.close()
            return self._connect(), 0
