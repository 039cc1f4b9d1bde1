"""A client for MongoDB's wire protocol on a raw socket: OP_MSG, one command at a time, without access control.

It uses no code of the product, and of the driver only the BSON encoder and the URI parser. So measurements exclude the
cost of the product and of the driver's cursors and connections.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

import bson
from pymongo.uri_parser import parse_uri

_HEADER = Struct("<iiii")  # message length, request ID, response to, opcode
_INT32 = Struct("<i")
_INT64 = Struct("<q")
_OP_MSG = 2013
_PRELUDE = bytes(5)  # no flags, and a section of kind 0 (one document)

Buffer = bytes | bytearray | memoryview


class Batch(NamedTuple):
    """One batch of a cursor: its array of documents as BSON bytes, and the cursor ID."""

    array: memoryview
    cursor: int


class Wire:
    """A connection to the server of a replica set with one member. The `with` block closes the connection."""

    def __init__(self, uri: str) -> None:
        self._socket = socket.create_connection(parse_uri(uri)["nodelist"][0])
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def batches(self, database: str, command: dict[str, Any], size: int) -> Iterator[memoryview]:
        """Yield the array of documents of each batch of a find or aggregate, with `size` documents per batch."""
        collection = command.get("find", "$cmd.aggregate")
        batch = self._batch(command | {"$db": database})
        yield batch.array
        more = {"collection": collection, "batchSize": size, "$db": database}
        while batch.cursor:
            batch = self._batch({"getMore": bson.Int64(batch.cursor)} | more)
            yield batch.array

    def insert(self, database: str, collection: str, array: memoryview) -> None:
        """Insert a BSON array of documents with write concern majority. Fail if a document is refused."""
        options = {"ordered": False, "writeConcern": {"w": "majority"}, "$db": database}
        head = bson.encode({"insert": collection} | options)[4:-1] + b"\x04documents\0"
        length = _INT32.pack(4 + len(head) + len(array) + 1)
        reply = self._exchange([length + head, array, b"\0"])
        assert b"writeErrors" not in reply, reply

    def _batch(self, command: dict[str, Any]) -> Batch:
        reply = self._exchange([bson.encode(command)])
        start = reply.find(b"Batch\0") + 6
        assert start > 5, reply
        end = start + _INT32.unpack_from(reply, start)[0]
        cursor = reply.index(b"\x12id\0", end) + 4
        return Batch(memoryview(reply)[start:end], _INT64.unpack_from(reply, cursor)[0])

    def _exchange(self, document: Sequence[Buffer]) -> bytearray:
        first, *others = document
        length = _HEADER.size + len(_PRELUDE) + sum(map(len, document))
        self._socket.sendall(_HEADER.pack(length, 0, 0, _OP_MSG) + _PRELUDE + first)
        for each in others:
            self._socket.sendall(each)
        return self._receive(_HEADER.unpack(self._receive(_HEADER.size))[0] - _HEADER.size)

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            read = self._socket.recv_into(left, len(left), socket.MSG_WAITALL)
            if not read:
                raise ConnectionError("the server closed the connection")
            left = left[read:]
        return data
