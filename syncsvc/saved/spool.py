"""The event spool: change events of the source that are saved on the destination until they are applied.

A row holds consecutive raw events, compressed, and the position after them. It also holds the cluster time of the
position before them, and a checksum of the resume token of that position. The checksum shows that each row begins where
the previous row ends, so together the rows are an exact copy of a part of the change stream.

A row is saved in several documents, because a document holds at most 16 MB: the header, which is part 0, and the
compressed events in further parts. The header is saved last and deleted first, and parts without a header are ignored.
So after a crash, each row is either complete or absent.

The rows belong to one run of one instance (the UUID `fence` of its run record) and to one direction (the number of
reversals). After a reversal, they are saved on the new destination: on the new source, each row would cause a change
event.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.read_concern import ReadConcern

from syncsvc.errors import EVENT_SPOOL_DAMAGED
from syncsvc.metadata import Metadata
from syncsvc.saved.rows import Rows
from syncsvc.saved.stored import StoredPosition
from verifier.cluster import rawbson
from verifier.cluster.rawbson import Buffer
from verifier.cluster.reading import read
from verifier.cluster.times import Position
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# The metadata collection of the rows.
SPOOL = "eventSpool"
# The size of the largest part, in bytes: a statement with it must fit into a document.
_PART_BYTES = 8 << 20
# The fastest level of compression: tokens and field names compress well at any level.
_LEVEL = 1

_stored_position = StoredPosition()


class Row(NamedTuple):
    """The header of a row of the event spool: its place in the change stream, and how its events are saved."""

    number: int
    # The time of the position before the events, and the checksum of its token. The token itself is not kept: it can be
    # 10 MB long, because it contains the `_id` of a document.
    since: Timestamp
    joint: int
    # The position after the events.
    end: Position
    # How many events the row contains.
    events: int
    # The number of compressed bytes, and of the documents that hold them.
    size: int
    parts: int
    checksum: int


def token_text(position: Position) -> str:
    """Return the resume token of a position as text. These texts sort in the order of the change stream."""
    return str(position.token["_data"])


def joint_of(position: Position) -> int:
    """Return the checksum of a position's resume token, for the check that a row begins where the previous row ends."""
    return zlib.crc32(token_text(position).encode())


def checksum(number: int, joint: int, end: Position, events: int, data: bytes) -> int:
    """Return the checksum of a row of the event spool.

    `number` is the number of the row, `data` its compressed events, `events` the number of events, and `end` the
    position after them. `joint` is the result of `joint_of` for the position before them.
    """
    header = f"{number} {joint} {token_text(end)} {events}"
    return zlib.crc32(data, zlib.crc32(header.encode()))


def pack(events: Sequence[Buffer]) -> bytes:
    """Return raw events as compressed bytes, for `unpack`."""
    return zlib.compress(b"".join(events), _LEVEL)


def unpack(data: bytes) -> list[memoryview]:
    """Return the raw events that `pack` has compressed. Raises zlib.error, and MalformedBson."""
    raw = memoryview(zlib.decompress(data))
    return list(_documents(raw))


def _documents(raw: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(raw):
        end = at + rawbson.int32_at(raw, at)[0]
        yield raw[at:end]
        at = end


def saved_end(metadata: Metadata, run: UUID, reversals: int, stop: StopToken) -> Position | None:
    """Return the position after the last saved row of a stopped instance; None if the instance has no rows.

    `run` is the `fence` of the instance's run record, and `reversals` the number of reversals so far. Raises the
    driver's errors.
    """
    rows = metadata.get_collection(SPOOL, read_concern=ReadConcern("majority"))
    query = _headers_of(run, reversals)
    found = read(lambda: rows.find_one(query, {"end": 1}, sort=[("_id", -1)]), stop)
    return None if found is None else _stored_position.load(found["end"])


def _headers_of(run: UUID, reversals: int) -> dict[str, Any]:
    direction = {"run": run.hex, "reversals": reversals}
    return {"_id": {"$gt": direction, "$lt": {**direction, "isPart": True}}}


class Spool:
    """The saved rows of one instance in one direction of the sync. Thread-safe.

    `writer` writes to the cluster of `metadata`; `run` is the `fence` of the run record. If the run has a saved
    position, call `load` before any other method, except `is_saved` and `clear`. The methods that save or delete rows,
    and `read`, also raise the other errors of `Rows`.
    """

    def __init__(
        self, metadata: Metadata, writer: ClusterWriter, run: UUID, reversals: int, stop: StopToken
    ) -> None:
        self._documents = Rows(metadata, writer, SPOOL, stop)
        self._reversals = reversals
        self._direction = {"run": run.hex, "reversals": reversals}
        self._headers = _headers_of(run, reversals)
        # Held while rows are saved or deleted; guards _number and _size.
        self._saving = threading.Lock()
        self._rows: deque[Row] = deque()  # replaced as a whole, so that reading it needs no lock
        self._size = 0
        self._number = 0
        self._since: Timestamp | None = None

    @property
    def end(self) -> Position | None:
        """Return the position at which the last saved row ends; None if no rows are saved."""
        rows = self._rows
        return rows[-1].end if rows else None

    @property
    def begin(self) -> Timestamp | None:
        """Return the cluster time of the position at which the first saved row begins; None if no rows are saved."""
        rows = self._rows
        return rows[0].since if rows else None

    @property
    def size(self) -> int:
        """Return the size of all rows in compressed bytes."""
        return self._size

    def after(self, position: Position) -> Row | None:
        """Return the first row that ends after `position`; None if there is no such row."""
        text = token_text(position)
        return next((each for each in self._rows if token_text(each.end) > text), None)

    def is_saved(self, stop: StopToken) -> bool:
        """Return whether any rows are saved. Shortly after an election, the answer may be out of date.

        Unlike `load`, this writes nothing. Raises the driver's errors.
        """
        rows = self._documents.metadata[SPOOL]
        return read(lambda: rows.find_one(self._headers, {"_id": 1}), stop) is not None

    def load(self, position: Position) -> None:
        """Load the headers of the saved rows, and delete the rows up to `position`, whose events are applied.

        Raises OperationError EventSpoolDamaged if the remaining rows do not begin at or before `position`, or if a row
        is missing between them. Also raises the driver's errors.
        """
        self._since = self._documents.newest_time()
        documents = self._find(filter=self._headers, sort={"_id": 1})
        rows = [*map(_row, documents)]
        self._number = rows[-1].number + 1 if rows else 0
        self._keep(rows)
        self.forget(position)
        self._refuse_gaps(position)

    def _refuse_gaps(self, position: Position) -> None:
        rows = self._rows
        if not rows:
            return
        if rows[0].since > position.time:
            raise _damaged(rows[0].number, "earlier rows are missing")
        for one, other in pairwise(rows):
            if (one.number + 1, joint_of(one.end)) != (other.number, other.joint):
                raise _damaged(other.number, "earlier rows are missing")

    def append(self, since: Position, end: Position, events: Sequence[Buffer]) -> None:
        """Save the events between the positions `since` and `end` as a row. `since` is the end of the last row, if any.

        A row without events records that there are none between the two positions. If the last row has no events
        either, it is extended instead. Raises the driver's errors.
        """
        with self._saving:
            rows = self._rows
            extended = bool(rows) and not events and not rows[-1].events
            number = rows[-1].number if extended else self._number
            began, joint = since.time, joint_of(since)
            if extended:
                began, joint = rows[-1].since, rows[-1].joint
            data = pack(events) if events else b""
            parts = [data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES)]
            check = checksum(number, joint, end, len(events), data)
            row = Row(number, began, joint, end, len(events), len(data), len(parts), check)
            self._save(row, parts)
            kept = [*rows][:-1] if extended else rows
            self._keep([*kept, row])
            self._number = number + 1

    def _keep(self, rows: Sequence[Row]) -> None:
        self._rows = deque(rows)
        self._size = sum(each.size for each in rows)

    def _save(self, row: Row, parts: Sequence[bytes]) -> None:
        contents: list[tuple[int, dict[str, Any]]] = [
            (part, {"data": Binary(data)}) for part, data in enumerate(parts, start=1)
        ]
        # Use upserts, because a command may be repeated after a lost reply.
        self._documents.save(
            {"q": {"_id": self._id(row.number, part)}, "u": content, "upsert": True}
            for part, content in (*contents, (0, _header(row)))
        )

    def read(self, row: Row) -> list[memoryview]:
        """Return the raw events of a row.

        Raises OperationError EventSpoolDamaged if their checksum is wrong, and the driver's errors.
        """
        data = self._data(row)
        if not _is_whole(row, data):
            # A primary that was elected meanwhile may not have the newest row yet.
            self._since = self._documents.newest_time()
            data = self._data(row)
        if not _is_whole(row, data):
            raise _damaged(row.number, "the checksum is wrong")
        return unpack(data) if row.events else []

    def _data(self, row: Row) -> bytes:
        ids = [self._id(row.number, part) for part in range(1, row.parts + 1)]
        found = self._find(filter={"_id": {"$in": ids}}, sort={"_id": 1})
        return b"".join(each["data"] for each in found)

    def forget(self, position: Position) -> None:
        """Delete the rows that end at or before `position`. Raises the driver's errors."""
        with self._saving:
            text = token_text(position)
            applied = [each for each in self._rows if token_text(each.end) <= text]
            if not applied:
                return
            ids = (self._id(row.number, part) for row in applied for part in range(row.parts + 1))
            self._documents.delete(ids)
            self._keep([*self._rows][len(applied) :])

    def clear(self) -> None:
        """Delete all rows of this instance and direction, including parts of rows that were never saved completely.

        Raises the driver's errors.
        """
        self._since = self._documents.newest_time()
        following = {**self._direction, "reversals": self._reversals + 1}
        query = {"_id": {"$gt": self._direction, "$lt": following}}
        found = self._find(filter=query, projection={"_id": 1})
        with self._saving:
            self._documents.delete(each["_id"] for each in found)
            self._keep([])

    def _find(self, **find: Any) -> list[dict[str, Any]]:
        if self._since is None:
            self._since = self._documents.newest_time()
        return [*map(rawbson.decode, self._documents.at(self._since, **find))]

    def _id(self, number: int, part: int) -> dict[str, Any]:
        # Headers are next to each other in the index, so that loading them does not read the events.
        return {**self._direction, "isPart": part > 0, "number": number, "part": part}


def _header(row: Row) -> dict[str, Any]:
    return {
        "since": row.since,
        "joint": row.joint,
        "end": _stored_position.dump(row.end),
        "events": row.events,
        "size": row.size,
        "parts": row.parts,
        "checksum": row.checksum,
    }


def _row(document: dict[str, Any]) -> Row:
    return Row(
        number=document["_id"]["number"],
        since=document["since"],
        joint=document["joint"],
        end=_stored_position.load(document["end"]),
        events=document["events"],
        size=document["size"],
        parts=document["parts"],
        checksum=document["checksum"],
    )


def _is_whole(row: Row, data: bytes) -> bool:
    return checksum(row.number, row.joint, row.end, row.events, data) == row.checksum


def _damaged(number: int, reason: str) -> OperationError:
    return OperationError(
        EVENT_SPOOL_DAMAGED,
        f"Row {number} of the collection {SPOOL} in the metadata on the destination cannot be used: {reason}.",
    )
