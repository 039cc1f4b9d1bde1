"""Applies change events to documents that are newer than the events: the result must equal the source byte for byte.

Each document on the destination begins in a state that a copy could have read at a random moment. Then all events of
the document are applied, beginning with the first event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from bson import Int64, Timestamp
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from syncsvc.engine.events.dispatch import group_of
from syncsvc.engine.events.lanes import Lane, Portion, Room
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.document_writer import DocumentWriter
from syncsvc.engine.run.frontier import Frontier
from syncsvc.engine.run.pace import Pace
from syncsvc.figures.progress import Progress
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.fence import Fence, FencedWriter
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.tuning import LOAD_LEVELS, Tuning
from tests.support.pair import Pair
from tests.unit.syncsvc.records import run_record
from verifier.cluster.changes import ChangeReader, ChangeStream, start_position
from verifier.cluster.events import DataEvent, parse_event
from verifier.cluster.facts import gather
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.tasks import StopToken

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
# Larger than any update: the server logs an update of a small document as a replacement.
PAD = "p" * 2000
# Only a few names, so that most paths exist; the letters are those that the oplog's diffs use.
NAMES = ["a", "u", "i", "s", "sa", "0"]
ODD_NAMES = ["", ".", "a.u", "$a", "s.a", "a.0", "$"]

_DOCUMENTS = 80
_WRITES = 25

Write = UpdateOne | ReplaceOne[Any] | DeleteOne | InsertOne[Any]


class Writes:
    """Generates random documents, and random writes to one document; `odd` allows fields with unusual names."""

    def __init__(self, random: Random, odd: bool) -> None:
        self._random = random
        self._odd = odd

    def document(self, identity: int) -> dict[str, Any]:
        return {"_id": identity, "pad": PAD, **self._fields(), "tail": PAD}

    def write(self, identity: int) -> Write:
        key = {"_id": identity}
        kind = self._random.random()
        if kind < 0.03:
            return ReplaceOne(key, self.document(identity), upsert=True)
        if kind < 0.05:
            return DeleteOne(key)
        if kind < 0.09:
            return InsertOne(self.document(identity))
        return UpdateOne(key, self._classic() if kind < 0.7 else self._pipeline())

    def _classic(self) -> dict[str, Any]:
        operator = self._random.choice(
            ["$set"] * 6 + ["$unset", "$inc", "$push", "$pop", "$rename"]
        )
        paths = {self._path() for _ in range(self._random.choice([1, 1, 2, 3]))}
        return {operator: {path: self._argument(operator) for path in paths}}

    def _argument(self, operator: str) -> Any:
        if operator == "$push":
            return {
                "$each": [self._value() for _ in range(2)],
                "$slice": self._random.randint(-4, 4),
            }
        given = {"$unset": 1, "$inc": 1, "$pop": 1, "$rename": self._path()}
        return given[operator] if operator in given else self._value()

    def _pipeline(self) -> list[dict[str, Any]]:
        return [self._stage() for _ in range(self._random.choice([1, 1, 2]))]

    def _stage(self) -> dict[str, Any]:
        kind = self._random.randrange(5)
        name = self._random.choice(NAMES)
        if kind == 0:
            return {"$set": {self._path(): {"$literal": self._value()} for _ in range(2)}}
        if kind == 1:
            return {"$unset": self._path()}
        if kind == 2:
            size = self._random.randint(1, 3)
            return {"$set": {name: {"$slice": [{"$ifNull": [f"${name}", [1, 2]]}, size]}}}
        if kind == 3:
            merged = {"$mergeObjects": ["$$ROOT", {"$literal": self._fields()}]}
            return {"$replaceWith": merged}
        odd = self._random.choice(ODD_NAMES if self._odd else NAMES)
        field = {"field": {"$literal": odd}, "input": "$$ROOT"}
        if self._random.random() < 0.3:
            return {"$replaceWith": {"$unsetField": field}}
        return {"$replaceWith": {"$setField": {**field, "value": {"$literal": self._value()}}}}

    def _path(self) -> str:
        return ".".join(self._random.choices(NAMES, k=self._random.choice([1, 1, 2, 2, 3])))

    def _fields(self, depth: int = 0) -> dict[str, Any]:
        names = [*NAMES, *(ODD_NAMES if self._odd else ())]
        chosen = self._random.sample(names, self._random.randint(3, 6))
        return {name: self._value(depth + 1) for name in chosen}

    def _value(self, depth: int = 1) -> Any:
        kind = self._random.randrange(12 if depth < 3 else 6)
        if kind == 6:
            return [self._value(depth + 1) for _ in range(self._random.randint(0, 4))]
        if kind > 6:
            return self._fields(depth)
        return [1, 1.0, Int64(1), "x" * self._random.randint(0, 9), Timestamp(0, 0), None][kind]


class Replay:
    """Reads the change events of one collection, and applies them with the daemon's own code (a `Lane`)."""

    def __init__(self, pair: Pair, shard_key: dict[str, Any] | None = None) -> None:
        self._stop = StopToken()
        source, destination = pair.source.client, pair.destination.client
        facts = gather(source)
        self.progress = Progress()
        nothing: Any = None
        sharded = bool(pair.destination.shards)
        writer = FencedWriter(
            destination, False, self._stop, Fence.of_process(), METADATA_DATABASE, sharded
        )
        given: dict[str, Any] = {
            "run": SimpleNamespace(record=run_record()),
            "source_client": source,
            "source_facts": facts,
            "destination_client": destination,
            "document_writer": DocumentWriter(
                writer, Tuning().sending_bytes, self._stop, lambda _: None
            ),
            "progress": self.progress,
            "tuning": Tuning(),
            "load": LOAD_LEVELS[1],
            "threads": LOAD_LEVELS[1],
            "pace": Pace(),
            "observe": lambda point, detail: None,
        }
        context = RunContext(
            **{each.name: given.get(each.name, nothing) for each in fields(RunContext)}
        )
        listed = next(source.d.list_collections(filter={"name": "c"}))
        name = Namespace("d", "c")
        spec = CollectionSpec(
            name,
            Kind.COLLECTION,
            bytes(listed["info"]["uuid"]),
            shard_key=shard_key if sharded else None,
        )
        source_key = shard_key if pair.source.shards else None
        self._record = CollectionRecord(spec, CopyStatus.DONE, name, source_key)
        self._source = source
        self._stream = ChangeStream(source, facts, raw_updates=True)
        self._position = start_position(self._stream)
        self._frontier = Frontier(self._position)
        self._lane = Lane(context, self._frontier, Room(Tuning(), self._stop), self._stop)

    def run(self, random: Random) -> int:
        """Apply all events since the creation of this object, in batches of random size; return their number."""
        end = self._source.admin.command({"appendOplogNote": 1, "data": {}})["operationTime"]
        events = self._events(end)
        count = 0
        while batch := list(islice(events, random.choice([1, 5, 50, 500]))):
            items = [(self._record, group_of(self._record, event), event) for event in batch]
            entry = self._frontier.enter(self._position, 1)
            self._lane._apply([Portion(items, entry, end, 0)])
            count += len(batch)
        return count

    def _events(self, end: Timestamp) -> Iterator[DataEvent]:
        for page in ChangeReader(self._stream, self._position, self._stop).pages():
            for view in page.events:
                event = parse_event(bytes(view))
                assert isinstance(event, DataEvent)
                yield event
            if page.position.time >= end:
                return


def write(collection: Collection[Any], writes: list[Write]) -> None:
    """Send the writes to the collection. Ignore errors of single writes, which the server may refuse."""
    try:
        collection.bulk_write(writes, ordered=False)
    except BulkWriteError:
        pass


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("seed", range(4))
def test_replayed_documents_have_the_sources_bytes(pair: Pair, seed: int) -> None:
    random = Random(seed)
    writes = Writes(random, odd=seed % 2 == 1)
    source, destination = (
        side.client.d.get_collection("c", codec_options=RAW)
        for side in (pair.source, pair.destination)
    )
    pair.destination.client.d.create_collection("c")
    source.insert_many([writes.document(n) for n in range(_DOCUMENTS)])
    replay = Replay(pair)
    # The last 20 documents do not exist yet; the writes may insert them.
    copied_at = {n: random.randrange(_WRITES) for n in range(_DOCUMENTS + 20)}
    for turn in range(_WRITES):
        write(source, [writes.write(n) for n in copied_at])
        now = [n for n, when in copied_at.items() if when == turn]
        if copied := list(source.find({"_id": {"$in": now}})):
            destination.insert_many(copied)
    events = replay.run(random)
    assert replay.progress.snapshot.documents_refetched < events / 20
    pair.assert_equal()
