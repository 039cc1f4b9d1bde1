"""Idle, half-sent and unread requests must not keep the server from answering other clients."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_app import make_app
from tests.support.waiting import wait_for
from tests.unit.deadlines import no_longer_than
from verifier.runtime.connections import MOST_CONNECTIONS
from verifier.runtime.httpd import MOST_READERS, REQUEST_THREADS

ROOT = Path(__file__).parents[3]

# In seconds. A server that does not make room would answer only when connections time out, after a minute.
DEADLINE = 40

SERVER = """
import socket, sys
from tests.support.small_app import make_app
from verifier.runtime import connections
from verifier.runtime.httpd import HttpServer
from verifier.runtime.tasks import StopToken
connections.LONGEST_SILENCE = float(sys.argv[1])
with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
server = HttpServer(make_app(), "127.0.0.1", port)
print(port, flush=True)
server.serve(StopToken())
"""

HALF_SENT = [
    b"G",
    b"GET /body HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    b"POST /body HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
]


@dataclass
class Served:
    """A server in a separate process, with the connections that a test opens to it."""

    port: int
    opened: ExitStack

    def connect(self, sent: bytes = b"", buffer: int = 0) -> socket.socket:
        """Open a connection that sends only the bytes `sent`.

        `buffer` is the size of the receive buffer in bytes, or 0 for the system's default. If it is small, the server
        can send almost nothing before the test reads.
        """
        connection = self.opened.enter_context(socket.socket())
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(sent)
        return connection

    def get_without_reading(self, path: str) -> socket.socket:
        return self.connect(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), 4096)

    def ask(self, method: str, path: str) -> tuple[int, Any]:
        """Send a request on a new connection, and return the status and the decoded JSON body of the answer."""
        connection = HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def assert_answers(self) -> None:
        assert self.ask("POST", "/body") == (200, {"body": {}})


def serve(silence: float) -> Iterator[Served]:
    command = [sys.executable, "-c", SERVER, str(silence)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT
    ) as process, ExitStack() as opened:
        try:
            assert process.stdout is not None
            yield Served(int(process.stdout.readline()), opened)
        finally:
            process.kill()


@pytest.fixture
def server() -> Iterator[Served]:
    """Run a server that closes idle connections only after a minute, longer than a test waits for an answer."""
    yield from serve(60.0)


@pytest.fixture
def hasty() -> Iterator[Served]:
    """Run a server that closes a connection whose client has read nothing for half a second."""
    yield from serve(0.5)


def idle(server: Served, number: int) -> None:
    server.connect()


def half_sent(server: Served, number: int) -> None:
    server.connect(HALF_SENT[number % len(HALF_SENT)])


def unread(server: Served, number: int) -> None:
    server.get_without_reading("/large/1000000")


CROWDS: dict[str, tuple[Callable[[Served, int], None], ...]] = {
    "idle": (idle,),
    "half-sent": (half_sent,),
    "unread": (unread,),
    "all of them": (idle, half_sent, unread),
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_many_idle_connections_do_not_block_requests(
    server: Served, crowd: tuple[Callable[[Served, int], None], ...]
) -> None:
    with no_longer_than(DEADLINE):
        for _ in range(MOST_READERS):
            server.get_without_reading("/endless")
        for number in range(300 // len(crowd)):
            for join in crowd:
                join(server, number)
        server.assert_answers()


def test_the_newest_connections_stay_open(server: Served) -> None:
    connections = [server.connect() for _ in range(2 * MOST_CONNECTIONS)]
    with no_longer_than(DEADLINE):
        newest = connections[-1]
        newest.sendall(b"GET /named HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert newest.recv(100).startswith(b"HTTP/1.1 418")
        assert connections[0].recv(1) == b"", "the oldest one is closed"


def test_an_answer_that_is_being_sent_is_not_cut_off_for_idle_connections(server: Served) -> None:
    with no_longer_than(DEADLINE):
        size = 10_000_000  # more than the system buffers, less than waitress buffers
        slow = server.get_without_reading(f"/large/{size}")
        with slow.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
            for _ in range(2 * MOST_CONNECTIONS):
                server.connect()
            server.assert_answers()
            while answer.readline() != b"\r\n":
                pass  # skip the headers
            assert len(answer.read(size)) == size


def test_slow_readers_leave_threads_for_other_requests(server: Served) -> None:
    with no_longer_than(DEADLINE):
        readers = [server.get_without_reading("/endless") for _ in range(MOST_READERS)]
        # The server has begun to answer each of them.
        assert all(reader.recv(1) == b"H" for reader in readers)
        for _ in range(REQUEST_THREADS):
            status, body = server.ask("GET", "/read/1")
            assert (status, body["error"]) == (503, "TooManyReaders")
        server.assert_answers()
        readers[0].close()
        wait_for(lambda: server.ask("GET", "/read/1")[0] == 200, "a place is free")


def test_a_stalled_reader_frees_its_slot(hasty: Served) -> None:
    with no_longer_than(DEADLINE):
        for _ in range(MOST_READERS):
            assert hasty.get_without_reading("/endless").recv(1) == b"H"
        wait_for(lambda: hasty.ask("GET", "/read/1")[0] == 200, "a place is free")


@pytest.mark.parametrize(
    "method, path", [("HEAD", "/read/1"), ("GET", "/read/1"), ("GET", "/read/0")]
)
def test_reader_slots_are_released(method: str, path: str) -> None:
    client = make_app().test_client()
    for _ in range(2 * MOST_READERS):
        assert client.open(path, method=method).status_code in (200, 418)
