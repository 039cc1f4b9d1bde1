"""A stand-in for `mongos`: `python -m tests.support.sharded.router MEMBERS PORT FOLDER`.

The stand-in listens on PORT of the loopback interface. MEMBERS are the addresses of the members of the config server,
separated by commas. All routers of a cluster share FOLDER. Each client connection has a thread. Unknown commands are
refused by name.
"""

from __future__ import annotations

import itertools
import logging
import socket
import socketserver
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.support.sharded.commands import Commands
from tests.support.sharded.servers import Shared
from tests.support.sharded.wire import Document, Message, read_message

_log = logging.getLogger(__name__)
_connections = itertools.count(1)
_HELLO = frozenset({"hello", "isMaster", "ismaster"})


class _Client(socketserver.BaseRequestHandler):
    """Handles the connection of one client in its own thread."""

    server: Router
    request: socket.socket

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = next(_connections)
        commands: Commands | None = None
        try:
            while (message := read_message(self.request)) is not None:
                if next(iter(message.body)) in _HELLO:
                    reply = _hello(message, number)
                else:
                    # A hello needs no Commands object, and drivers open connections that send nothing else.
                    commands = commands or self.server.commands()
                    reply = _reply_to(commands, message)
                if message.answered is not None:
                    self.request.sendall(message.reply(reply))
        except OSError as error:
            _log.info("connection %d: %s", number, error)
        finally:
            if commands is not None:
                commands.close()


class Router(socketserver.ThreadingTCPServer):
    """The server that listens for clients; `shared` is what all clients share."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, shared: Shared) -> None:
        super().__init__(("127.0.0.1", port), _Client)
        self._shared = shared

    def commands(self) -> Commands:
        return Commands(self._shared)


def _reply_to(commands: Commands, message: Message) -> Document:
    try:
        return commands.reply(message.body, message.sequences)
    except Exception as error:
        _log.exception("a fault of the stand-in")
        return {"ok": 0.0, "errmsg": f"a fault of the stand-in: {error!r}", "code": 1}


def _hello(message: Message, number: int) -> Document:
    asked = message.body
    reply: Document = {
        "isWritablePrimary": True,
        "ismaster": True,
        "msg": "isdbgrid",
        "maxBsonObjectSize": 16 << 20,
        # This is less than a server accepts, because the router adds fields to commands.
        "maxMessageSizeBytes": 47_000_000,
        "maxWriteBatchSize": 100_000,
        "localTime": datetime.now(UTC),
        "logicalSessionTimeoutMinutes": 30,
        "connectionId": number,
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "ok": 1.0,
    }
    if asked.get("helloOk"):
        reply["helloOk"] = True
    return reply


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    shared = Shared(tuple(sys.argv[1].split(",")), Path(sys.argv[3]))
    with Router(int(sys.argv[2]), shared) as router:
        router.serve_forever()
