"""Messages of MongoDB's wire protocol, and connections to servers that send and receive them.

Only the top level of a message is decoded. Nested documents stay bytes, because decoding loses duplicate names and
deprecated types.
"""

from __future__ import annotations

import itertools
import select
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Self

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

Document = dict[str, Any]

_RAW = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_HEADER = Struct("<iiii")
_INT32 = Struct("<i")
_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_CHECKSUM, _MORE_TO_COME = 1, 2
BAD_VALUE, NAMESPACE_NOT_FOUND, NO_SUCH_COMMAND = 2, 26, 59
_numbers = itertools.count(1)


class Refused(Exception):
    """Raised if a command has failed; `reply` is the server's reply."""

    def __init__(self, reply: Document) -> None:
        super().__init__(reply.get("errmsg"))
        self.reply = reply

    @property
    def code(self) -> int:
        return int(self.reply.get("code", 0))


def refusal(code: int, message: str) -> Refused:
    return Refused({"ok": 0.0, "errmsg": message, "code": code})


@dataclass(frozen=True)
class Message:
    """A command that a client has sent. `sequences` are its document sequences as bytes.

    `number` is the ID of the message, and `answered` is the opcode of the reply; None if the client expects no reply.
    """

    number: int
    body: Document
    sequences: bytes
    answered: int | None

    def reply(self, body: Mapping[str, Any]) -> bytes:
        if self.answered == _OP_REPLY:
            head = Struct("<iqii").pack(0, 0, 0, 1)
            return _message(_OP_REPLY, self.number, head + bson.encode(body))
        return _message(_OP_MSG, self.number, bytes(5) + bson.encode(body))


def read_message(connection: socket.socket) -> Message | None:
    """Return the next command of a client; None if the client has disconnected."""
    try:
        size, number, _, kind = _HEADER.unpack(_read(connection, _HEADER.size))
        content = _read(connection, size - _HEADER.size)
    except ConnectionError:
        return None
    if kind == _OP_QUERY:
        name_end = content.index(0, 4)
        return Message(number, fields(content[name_end + 9 :]), b"", _OP_REPLY)
    flags = _INT32.unpack_from(content)[0]
    body, sequences = _sections(content[4 : -4 if flags & _CHECKSUM else None])
    return Message(number, fields(body), sequences, None if flags & _MORE_TO_COME else _OP_MSG)


def fields(raw: bytes) -> Document:
    """Return the fields of a BSON document; the values of nested documents stay bytes."""
    size = _INT32.unpack_from(raw)[0]
    return dict(RawBSONDocument(raw[:size], _RAW))


def documents(sequence: bytes) -> list[RawBSONDocument]:
    """Return the documents of a document sequence, a section of OP_MSG."""
    start = sequence.index(0, 5) + 1
    return bson.decode_all(sequence[start:], _RAW)


class Clock:
    """The newest cluster time that any message has contained. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the newest time
        self.newest: Mapping[str, Any] | None = None

    def observe(self, message: Document) -> None:
        """Remove the cluster time from a message. If it is newer than the recorded one, record it."""
        told = message.pop("$clusterTime", None)
        if told is not None:
            with self._lock:
                if self.newest is None or self.newest["clusterTime"] < told["clusterTime"]:
                    self.newest = told

    @property
    def time(self) -> Any:
        """Return the newest time as a timestamp."""
        assert self.newest is not None, "no server was asked yet"
        return self.newest["clusterTime"]


class ServerConnection:
    """A connection to a mongod. Use it as a context manager that closes the connection.

    Each command carries the newest known cluster time, and the cluster time of each reply is recorded in `clock`.
    `timeout` is in seconds, for the connection attempt and for each reply; None waits for ever.
    """

    def __init__(self, address: str, clock: Clock, timeout: float | None = None) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def is_gone(self) -> bool:
        """Return whether the server has closed the connection.

        Call this only while no reply is expected: then nothing but the end of the connection can be readable.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def run(self, body: Mapping[str, Any], sequences: bytes = b"") -> Document:
        """Run a command and return its reply.

        Raises Refused if the command fails, and OSError if the connection fails.
        """
        self.send(body, sequences)
        return self.receive()

    def send(self, body: Mapping[str, Any], sequences: bytes = b"") -> None:
        if self._clock.newest is not None:
            body = {**body, "$clusterTime": self._clock.newest}
        content = b"".join((bytes(5), bson.encode(body), sequences))
        self._socket.sendall(_message(_OP_MSG, 0, content))

    def receive(self) -> Document:
        size, *_ = _HEADER.unpack(_read(self._socket, _HEADER.size))
        reply = fields(_read(self._socket, size - _HEADER.size)[5:])
        self._clock.observe(reply)
        if not reply["ok"]:
            raise Refused(reply)
        return reply


def _message(kind: int, answers: int, content: bytes) -> bytes:
    size = _HEADER.size + len(content)
    return _HEADER.pack(size, next(_numbers) % (1 << 31), answers, kind) + content


def _sections(content: bytes) -> tuple[bytes, bytes]:
    """Return the body of an OP_MSG, and the bytes of all of its document sequences."""
    at, body, sequences = 0, b"", []
    while at < len(content):
        kind, size = content[at], _INT32.unpack_from(content, at + 1)[0]
        if kind == 0:
            body = content[at + 1 : at + 1 + size]
        else:
            sequences.append(content[at : at + 1 + size])
        at += 1 + size
    return body, b"".join(sequences)


def _read(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        read = connection.recv_into(view)
        if not read:
            raise ConnectionError("the connection was closed")
        view = view[read:]
    return bytes(content)
