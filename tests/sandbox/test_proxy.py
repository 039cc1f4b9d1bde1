"""Tests how the proxies of the tests find out which process has opened a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from tests.support.proxy import connections_of

_CONNECT = """
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
connection.bind(("127.0.0.1", int(sys.argv[1])))
connection.connect(("127.0.0.1", int(sys.argv[2])))
print(flush=True)
sys.stdin.read()
"""


def test_connections_of_two_processes_may_have_the_same_local_port() -> None:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        mine, other = (each.getsockname()[1] for each in listeners)
        connection = stack.enter_context(socket.socket())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind(("127.0.0.1", 0))
        connection.connect(("127.0.0.1", mine))
        local = connection.getsockname()[1]
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _CONNECT, str(local), str(other)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        assert process.stdin is not None and process.stdout is not None
        stack.callback(process.stdin.close)
        assert process.stdout.readline() == b"\n"
        assert (local, mine) in connections_of(os.getpid())
        assert (local, other) not in connections_of(os.getpid())
        assert (local, other) in connections_of(process.pid)
