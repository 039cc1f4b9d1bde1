"""The transaction numbers of retryable writes, recorded for all stand-ins for mongos of a sharded cluster.

The internal commands that replace a router's own writes accept no transaction number. So the stand-in does what each
shard of a real cluster does. It refuses a number below the newest number of its session, and answers a known number
with the recorded reply. Unlike real shards, the stand-in keeps one number for the whole cluster.

All routers of a cluster share a folder with one file for each session. A file is locked while a write of its session
runs, just as a real server locks the session.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import bson
from bson.raw_bson import RawBSONDocument

from tests.support.sharded.wire import Document, fields, refusal

TRANSACTION_TOO_OLD = 225


class Numbers:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def once(self, lsid: Any, number: int, run: Callable[[], Document]) -> Document:
        """Call `run` and return its reply, or return the recorded reply if `number` is the newest of the session.

        The reply of a call that raised an error is not recorded. Raises Refused if `number` is lower than the newest
        one.
        """
        name = bytes(fields(_raw(lsid))["id"]).hex()
        with (self._folder / f"session-{name}").open("a+b") as kept:
            fcntl.flock(kept, fcntl.LOCK_EX)
            newest, recorded = _read(kept)
            if number < newest:
                message = f"Retryable write with txnNumber {number} is prohibited on session {name}"
                raise refusal(TRANSACTION_TOO_OLD, message)
            if number == newest and recorded is not None:
                return recorded
            # Record the number before the write, because a shard also remembers the number of a failed write.
            _write(kept, number, None)
            reply = run()
            _write(kept, number, reply)
            return reply


def _raw(document: Any) -> bytes:
    return bytes(document.raw) if isinstance(document, RawBSONDocument) else bson.encode(document)


def _read(kept: IO[bytes]) -> tuple[int, Document | None]:
    kept.seek(0)
    content = kept.read()
    if not content:
        return -1, None
    found = fields(content)
    return found["number"], None if found["reply"] is None else fields(found["reply"].raw)


def _write(kept: IO[bytes], number: int, reply: Document | None) -> None:
    kept.truncate(0)
    kept.write(bson.encode({"number": number, "reply": reply}))
    kept.flush()
