"""A change stream of a whole cluster, merged from a stream of each shard.

An event is returned when all other shards have shown that they have no earlier events: by a later event, or by the
resume token of an empty reply. Resume tokens are hexadecimal strings, and their order is the order of the stream.
Shards that are added while a stream is open are ignored.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from tests.support.sharded.catalog import Shard
from tests.support.sharded.wire import Clock, Document, Refused, ServerConnection, refusal

# The maxTimeMS of a getMore on a shard.
_SHARD_WAIT_MS = 50
_DEFAULT_WAIT_MS = 1000
_MOST_EVENTS = 10_000
_MOST_BYTES = 12 << 20


class MergedStream:
    """The merged cursor of a `$changeStream` command on all shards. Do not use it after it has raised Refused."""

    def __init__(self, shards: Iterable[Shard], clock: Clock, call: Document) -> None:
        self._lock = threading.Lock()  # held by the command that uses the stream
        collection = call["aggregate"]
        self._name = f"{call['$db']}.{'$cmd.aggregate' if collection == 1 else collection}"
        start, self._token = _start(call["pipeline"][0]["$changeStream"], clock)
        command = _shard_command(call, start)
        self._parts = [
            _Part(ServerConnection(shard.address, clock), command, self._token) for shard in shards
        ]

    def first(self, cursor_id: int) -> Document:
        """Return the reply to the client's aggregate command. Its first batch is empty."""
        return self._reply(cursor_id, "firstBatch", [])

    def more(self, cursor_id: int, call: Document) -> Document:
        """Return the reply to the getMore `call` as soon as there are events, or when its maxTimeMS has passed."""
        deadline = monotonic() + call.get("maxTimeMS", _DEFAULT_WAIT_MS) / 1000
        with self._lock:
            while True:
                self._read()
                events = self._ready(call.get("batchSize", _MOST_EVENTS))
                if events or monotonic() >= deadline:
                    return self._reply(cursor_id, "nextBatch", events)

    def close(self) -> None:
        with self._lock:
            for part in self._parts:
                part.close()

    def _read(self) -> None:
        """Read one more reply from each shard whose buffer of events is empty."""
        asked = [part for part in self._parts if not part.events]
        for part in asked:
            part.ask()
        for part in asked:
            part.take_answer()

    def _ready(self, most: int) -> list[RawBSONDocument]:
        ready: list[RawBSONDocument] = []
        size = 0
        while len(ready) < most and size < _MOST_BYTES:
            first = self._first()
            if not first.events:
                break
            self._token, event = first.events.popleft()
            ready.append(event)
            size += len(event.raw)
        return ready

    def _first(self) -> _Part:
        """Return the shard's stream whose next token is the lowest; if several are equal, prefer one with an event."""
        return min(self._parts, key=lambda part: (part.reached, not part.events))

    def _reply(self, cursor_id: int, batch: str, events: list[RawBSONDocument]) -> Document:
        first = self._first()
        if not first.events:
            self._token = max(self._token, first.reached)
        cursor = {
            batch: events,
            "postBatchResumeToken": {"_data": self._token},
            "id": cursor_id,
            "ns": self._name,
        }
        return {"cursor": cursor, "ok": 1.0}


class _Part:
    """The change stream of one shard: its buffered events, and the token up to which they are complete."""

    def __init__(self, connection: ServerConnection, command: Document, after: str) -> None:
        self.events: deque[tuple[str, RawBSONDocument]] = deque()
        self._connection = connection
        self._database = command["$db"]
        self._after = self._reached = after
        cursor = connection.run(command)["cursor"]
        self._cursor_id, self._collection = cursor["id"], cursor["ns"].partition(".")[2]

    @property
    def reached(self) -> str:
        """Return the lowest resume token that the next event of this shard can have."""
        return self.events[0][0] if self.events else self._reached

    def ask(self) -> None:
        self._connection.send(
            {
                "getMore": self._cursor_id,
                "collection": self._collection,
                "$db": self._database,
                "maxTimeMS": _SHARD_WAIT_MS,
            }
        )

    def take_answer(self) -> None:
        cursor = self._connection.receive()["cursor"]
        for event in cursor["nextBatch"]:
            token = event["_id"]["_data"]
            # After a start at an operation time, events before the token can be repeated.
            if token > self._after:
                self.events.append((token, event))
        self._reached = max(self._reached, cursor["postBatchResumeToken"]["_data"])

    def close(self) -> None:
        with self._connection, suppress(Refused):
            self._connection.run(
                {
                    "killCursors": self._collection,
                    "cursors": [self._cursor_id],
                    "$db": self._database,
                }
            )


def _start(stage: RawBSONDocument, clock: Clock) -> tuple[Timestamp, str]:
    """Return the cluster time from which the shards' streams start, and the token up to which events are skipped.

    `stage` is the `$changeStream` stage of the client.
    """
    if stage.get("showMigrationEvents"):
        raise refusal(31123, "Change streams from mongos may not show migration events")
    resume = stage.get("resumeAfter") or stage.get("startAfter")
    if resume is not None:
        token = resume["_data"]
        return Timestamp(int(token[2:10], 16), int(token[10:18], 16)), token
    start = stage.get("startAtOperationTime") or Timestamp(clock.time.time, clock.time.inc + 1)
    # A token that sorts before all events of that time.
    return start, f"82{start.time:08X}{start.inc:08X}2B0229296E04"


def _shard_command(call: Document, start: Timestamp) -> Document:
    stage = dict(call["pipeline"][0]["$changeStream"])
    for name in ("resumeAfter", "startAfter"):
        stage.pop(name, None)
    stage["startAtOperationTime"] = start
    kept: Document = {name: call[name] for name in ("collation", "comment") if name in call}
    return {
        "aggregate": call["aggregate"],
        "$db": call["$db"],
        "pipeline": [{"$changeStream": stage}, *call["pipeline"][1:]],
        "cursor": {"batchSize": 0},
        **kept,
    }
