"""Tests that the daemon and the verifier answer although many other connections are idle.

Some of these connections have sent half a request, or do not read their answer.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.service_process import ServiceProcess
from tests.support.verifier import Verifier
from tests.unit.deadlines import no_longer_than

# In seconds. A process that does not make room would answer only when connections time out, after a minute.
DEADLINE = 40


def assert_answers_beside_a_crowd(process: ServiceProcess, slow: str) -> None:
    """Fail unless the process answers in time although it has 650 useless connections.

    300 of them are idle, 300 have sent half a request, and 50 do not read the answer to GET `slow`.
    """
    half = b"POST /api/v1/commit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{"
    unread = f"GET /api/v1/{slow} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as opened, no_longer_than(DEADLINE):
        for sent in [b""] * 300 + [half] * 300 + [unread] * 50:
            connection = socket.create_connection(("127.0.0.1", process.port))
            opened.enter_context(connection).sendall(sent)
        assert process.progress()
        assert process.get("/metrics").status_code == 200


def test_a_daemon_answers_despite_many_clients(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start()
    assert_answers_beside_a_crowd(daemon, "mismatches")
    daemon.commit()
    pair.assert_equal()


def test_a_verifier_answers_despite_many_clients(pair: Pair, tmp_path: Path) -> None:
    verifier = Verifier(pair.source.uri, pair.destination.uri, tmp_path, "--verifyAll", "--start")
    with verifier.running():
        assert_answers_beside_a_crowd(verifier, "docMismatches")
        verifier.writes_off()
        assert verifier.wait_for_verdict()["verdict"] == "passed"
