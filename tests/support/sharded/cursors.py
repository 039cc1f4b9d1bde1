"""Keeps the open cursors of the clients of the stand-in for mongos."""

from __future__ import annotations

import secrets
import threading

from tests.support.sharded.streams import MergedStream
from tests.support.sharded.wire import refusal
from verifier.cluster.rawbson import elements

_CURSOR_NOT_FOUND = 43


class Cursors:
    """The open cursors of all clients, by ID: each is a cursor of a server, or a change stream merged from all shards.

    For a cursor of a server, the value is the server's address and the name of its getMore command. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the cursors
        self._cursors: dict[int, tuple[str, str] | MergedStream] = {}

    def add(self, cursor: tuple[str, str] | MergedStream, cursor_id: int = 0) -> int:
        """Add a cursor and return its ID: `cursor_id`, or a random number if `cursor_id` is 0.

        The cursor is a merged stream, or the address of a server and the name of its getMore command.
        """
        with self._lock:
            number = cursor_id or secrets.randbits(62) + 1
            self._cursors[number] = cursor
            return number

    def find(self, cursor_id: int) -> tuple[str, str] | MergedStream:
        with self._lock:
            if cursor_id not in self._cursors:
                raise refusal(_CURSOR_NOT_FOUND, f"cursor id {cursor_id} not found")
            return self._cursors[cursor_id]

    def remove(self, cursor_id: int) -> None:
        with self._lock:
            self._cursors.pop(cursor_id, None)


def cursor_id_of(cursor: bytes) -> int:
    """Return the ID in the encoded `cursor` field of a reply, without decoding its documents."""
    for element in elements(cursor):
        if element.name == b"id":
            return int.from_bytes(cursor[element.start : element.end], "little", signed=True)
    raise AssertionError("a cursor without id")
