"""TCP proxies on loopback, one for each server, that delay, hold, lose, cut or reset messages of the wire protocol.

Each connection is identified by the application name in its first message. So a test can disturb the product alone,
while the members of a replica set and the test itself communicate through the same proxies.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

PRODUCT = "syncsvc"
_HOST = "127.0.0.1"
_LENGTH = struct.Struct("<i")
_OP_MSG = 2013
# Closing a socket with this option sends RST instead of FIN.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Way(Enum):
    """The two directions of a connection."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


BOTH_WAYS = frozenset(Way)


@dataclass(eq=False)
class Rule:
    """A way to disturb messages, for example to hold or delay them, on all connections of one application."""

    application: str = PRODUCT
    ways: frozenset[Way] = BOTH_WAYS
    # If not empty, only requests with these command names, and their replies, are disturbed.
    commands: frozenset[str] = frozenset()
    # If not None, only these connections are disturbed.
    connections: frozenset[Connection] | None = None
    # If not None, only the connections that this process has opened are disturbed.
    pid: int | None = None
    # The delay of each message, in seconds.
    latency: float = 0.0
    bytes_per_second: float | None = None
    # Messages are delivered only at the end of the rule.
    held: bool = False
    # Messages are never delivered.
    lost: bool = False
    # How many bytes of a message are delivered before the connection is reset.
    cut_after: int | None = None
    # How many messages the rule has disturbed, and how many it disturbs at most.
    hits: int = 0
    most: float = inf
    # Set at the end of the rule.
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, connection: Connection, way: Way) -> bool:
        if way not in self.ways or self.application not in connection.application:
            return False
        if self.hits >= self.most:
            return False
        if self.connections is not None and connection not in self.connections:
            return False
        if self.pid is not None and not connection.is_of(self.pid):
            return False
        return not self.commands or connection.command in self.commands


class Network:
    """The proxies of a test, and the rules that disturb their messages. Use it as a context manager.

    The proxies run in one thread with an event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self.rules: list[Rule] = []
        self.connections: set[Connection] = set()
        # The number of requests of each command that the product has sent through these proxies.
        self.sent: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def proxy(self, port: int) -> Proxy:
        """Return a new proxy of the server on that port; the server need not be running yet."""
        listener = socket.create_server((_HOST, 0))
        proxy = Proxy(self, port, listener.getsockname()[1])
        self._run(proxy.listen(listener))
        return proxy

    @contextmanager
    def obeying(self, rule: Rule) -> Iterator[Rule]:
        """Apply the rule during the block. At the end of the block, deliver the messages that it has held, in order."""
        self._loop.call_soon_threadsafe(self.rules.append, rule)
        try:
            yield rule
        finally:
            self._run(self._lift(rule))

    def held(self, *ways: Way, commands: tuple[str, ...] = ()) -> Any:
        """Hold messages of the product during the block, even after their clients disconnect; then deliver them.

        `ways` are the directions to hold; without any, both. If there are `commands`, only requests with these names
        and their replies are held.
        """
        chosen = frozenset(ways) or BOTH_WAYS
        return self.obeying(Rule(held=True, ways=chosen, commands=frozenset(commands)))

    def held_of(self, pid: int, *ways: Way) -> Any:
        """Hold all messages of one process of the product within the block, even on connections that it opens later.

        `ways` are the directions to hold; without any, both.
        """
        chosen = frozenset(ways) or BOTH_WAYS
        return self.obeying(Rule(held=True, ways=chosen, pid=pid))

    def held_of_existing(self, *ways: Way) -> Any:
        """Hold messages of the product on its open connections within the block; connections opened later work.

        `ways` are the directions to hold; without any, both.
        """
        chosen = frozenset(ways) or BOTH_WAYS
        return self.obeying(Rule(held=True, ways=chosen, connections=self.of(PRODUCT)))

    def of(self, application: str) -> frozenset[Connection]:
        """Return the open connections of an application: PRODUCT, or "other" for all other applications."""
        return frozenset(each for each in [*self.connections] if application in each.application)

    def lost(self, *ways: Way) -> Any:
        """Lose all messages of the product within the block.

        `ways` are the directions in which messages are lost; without any, both. A connection that has lost a message
        stays silent in that direction, even after the block, until one side closes it.
        """
        return self.obeying(Rule(lost=True, ways=frozenset(ways) or BOTH_WAYS))

    def slow(self, latency: float = 0.0, bytes_per_second: float | None = None) -> Any:
        return self.obeying(Rule(latency=latency, bytes_per_second=bytes_per_second))

    def cut(self, way: Way, after: int, *commands: str) -> Any:
        """Reset each connection of the product during its next message in the direction `way`, while the block runs.

        The first `after` bytes of the message are delivered before the reset. If there are `commands`, only requests
        with these names and their replies cause a reset.
        """
        return self.obeying(
            Rule(cut_after=after, ways=frozenset({way}), commands=frozenset(commands))
        )

    def reset(self, application: str = PRODUCT) -> int:
        """Reset all connections of the application, and return their number."""

        async def reset_all() -> int:
            found = self.of(application)
            for each in found:
                each.reset()
            return len(found)

        return self._run(reset_all())

    async def _lift(self, rule: Rule) -> None:
        self.rules.remove(rule)
        rule.released.set()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(30)


def connections_of(pid: int) -> set[tuple[int, int]]:
    """Return the ports (local, remote) of all TCP sockets of a process; an empty set if the process has ended.

    Connections of two processes to different servers may have the same local port.
    """
    sockets = set()
    with suppress(FileNotFoundError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            # A file may be closed before its link is read.
            with suppress(FileNotFoundError):
                sockets.add(str(each.readlink()))
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    found = (row.split() for row in rows)
    return {(_port(row[1]), _port(row[2])) for row in found if f"socket:[{row[9]}]" in sockets}


def _port(address: str) -> int:
    """Return the port of an address in /proc/net/tcp, such as `0100007F:6A2E`."""
    return int(address.rpartition(":")[2], 16)


class Proxy:
    """Listens on its own port, and forwards connections to the port of a server."""

    def __init__(self, network: Network, server: int, port: int) -> None:
        self.network = network
        self.server = server
        self.port = port
        # One lock for each direction: connections share the bandwidth of a rule.
        self.lines = {way: asyncio.Lock() for way in Way}

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    async def listen(self, listener: socket.socket) -> None:
        await asyncio.start_server(self._accept, sock=listener)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(_HOST, self.server)
        except OSError:
            _reset(writer)
            return
        connection = Connection(self, (reader, writer), server)
        self.network.connections.add(connection)
        try:
            # Cancelled at the end of the test; asyncio would print the cancellation.
            with suppress(asyncio.CancelledError):
                await connection.run()
        finally:
            self.network.connections.discard(connection)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Connection:
    """A client's connection to a proxy, together with the proxy's connection to the server."""

    def __init__(self, proxy: Proxy, client: Stream, server: Stream) -> None:
        self.application = ""
        # The name of the last request, to which a reply belongs.
        self.command = ""
        self._proxy = proxy
        self._network = proxy.network
        self._client, self._server = client, server
        self._deaf: set[Way] = set()
        self._ports = (int(client[1].get_extra_info("peername")[1]), proxy.port)
        self._owners: dict[int, bool] = {}

    def is_of(self, pid: int) -> bool:
        """Return whether the process `pid` has opened the connection."""
        if pid not in self._owners:
            self._owners[pid] = self._ports in connections_of(pid)
        return self._owners[pid]

    async def run(self) -> None:
        client, server = self._client, self._server
        await asyncio.gather(
            self._pass_on(Way.TO_SERVER, client[0], server[1]),
            self._pass_on(Way.TO_CLIENT, server[0], client[1]),
        )
        for _, writer in (client, server):
            writer.close()

    def reset(self) -> None:
        for _, writer in (self._client, self._server):
            _reset(writer)

    async def _pass_on(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward the messages of one direction, subject to the rules of the network.

        Messages are read even while a rule holds them, so that the messages of a killed client can still be delivered
        afterwards.
        """
        messages: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reading = asyncio.create_task(_read_all(reader, messages))
        try:
            with suppress(OSError):
                while (arrival := await messages.get())[1]:
                    await self._deliver(way, *arrival, writer)
                if writer.can_write_eof():
                    writer.write_eof()
        finally:
            reading.cancel()

    async def _deliver(
        self, way: Way, arrived: float, message: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if way is Way.TO_SERVER:
            self._note(message)
        while rule := next((r for r in self._network.rules if r.matches(self, way)), None):
            rule.hits += 1
            if not rule.held:
                break
            await rule.released.wait()
        if way in self._deaf or (rule and rule.lost):
            self._deaf.add(way)
            return
        if rule and rule.cut_after is not None:
            writer.write(message[: rule.cut_after])
            self.reset()
            return
        if rule:
            await self._delay(rule, way, arrived, len(message))
        writer.write(message)
        await writer.drain()

    async def _delay(self, rule: Rule, way: Way, arrived: float, size: int) -> None:
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, arrived + rule.latency - now))
        if rule.bytes_per_second is not None:
            async with self._proxy.lines[way]:
                await asyncio.sleep(size / rule.bytes_per_second)

    def _note(self, message: bytes) -> None:
        if not self.application:
            self.application = PRODUCT if PRODUCT.encode() in message else "other"
        self.command = _command(message)
        if self.application == PRODUCT:
            self._network.sent[self.command] += 1


async def _read_all(
    reader: asyncio.StreamReader, messages: asyncio.Queue[tuple[float, bytes]]
) -> None:
    """Put each message with its time of arrival into the queue, and an empty message at the end of the stream."""
    now = asyncio.get_running_loop().time
    try:
        while True:
            head = await reader.readexactly(_LENGTH.size)
            rest = await reader.readexactly(_LENGTH.unpack(head)[0] - len(head))
            messages.put_nowait((now(), head + rest))
    except asyncio.IncompleteReadError as error:
        if error.partial:
            messages.put_nowait((now(), error.partial))
    except OSError:
        pass
    messages.put_nowait((now(), b""))


def _command(message: bytes) -> str:
    """Return the command name of a request; `hello` for a request in the legacy format, which only hello uses."""
    if _LENGTH.unpack_from(message, 12)[0] != _OP_MSG:
        return "hello"
    # After the flags and the kind of the first section come its length, the type of its first field, and the field's
    # name.
    return message[26 : message.index(0, 26)].decode()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
        )
    writer.transport.abort()
