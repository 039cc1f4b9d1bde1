"""The documents of the benchmarks. They are the same bytes in every run, because a fixed seed determines all values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

import bson

from syncsvc.sandbox.replica_set import Client
from verifier.cluster.rawbson import RawDocuments, int32

DATABASE = "bench"
PAGE_BYTES = 3_000_000

_SEED = 7
# The maximum number of different documents, apart from their `_id`, and their maximum total size in bytes.
_VARIETY = 1009
_VARIETY_BYTES = 64_000_000
_EPOCH = datetime(2020, 1, 1, tzinfo=timezone.utc)
_WORDS = [
    "".join(Random(f"{_SEED} {number}").choices("abcdefghijklmnopqrstuvwxyz", k=3 + number % 8))
    for number in range(1000)
]


@dataclass(frozen=True)
class DataSet:
    """A set of collections that all contain the same documents.

    `documents` is the number of documents in each collection, and `size` is the size of a document in bytes.
    """

    name: str
    collections: int
    documents: int
    size: int

    @property
    def count(self) -> int:
        return self.collections * self.documents

    @property
    def bytes(self) -> int:
        return self.count * self.size

    @property
    def names(self) -> list[str]:
        return [f"c{number}" for number in range(self.collections)]


SETS = {
    each.name: each
    for each in (
        DataSet("medium", collections=1, documents=1_000_000, size=500),
        DataSet("small", collections=20, documents=50_000, size=200),
        DataSet("large", collections=1, documents=20_000, size=50_000),
        DataSet("huge", collections=1, documents=1_000, size=1_000_000),
    )
}


def data_set(name: str, documents: int | None = None) -> DataSet:
    """Return the data set `name`; with `documents`, each of its collections contains that number."""
    return SETS[name] if documents is None else replace(SETS[name], documents=documents)


def fields(random: Random, size: int) -> dict[str, Any]:
    """Return a random document without `_id`. With an `_id` of type int, the document has `size` bytes."""
    document = {
        "name": " ".join(random.choices(_WORDS, k=2)),
        "price": round(random.uniform(1, 1000), 2),
        "quantity": random.randrange(1000),
        "sold": _EPOCH + timedelta(seconds=random.randrange(10**8)),
        "place": {"x": random.random(), "y": random.random()},
        "tags": random.choices(_WORDS, k=2),
        "text": "",
    }
    room = size - len(bson.encode(document)) - len(_id_field(0))
    words = " ".join(random.choices(_WORDS, k=max(1, room // 4)))
    return document | {"text": words[:room]}


def load(client: Client, data: DataSet) -> None:
    """Insert the data set into the database `DATABASE`, in which its collections must be empty or missing."""
    for name in data.names:
        for page in _pages(data):
            command = {"insert": name, "ordered": False, "documents": [RawDocuments(page)]}
            reply = client[DATABASE].command(command)
            assert "writeErrors" not in reply, reply["writeErrors"]


def fingerprint(client: Client) -> str:
    """Return a hash of all documents in the database `DATABASE`; it is equal for clusters with the same documents."""
    reply = client[DATABASE].command("dbHash")
    return str(reply["md5"])


def _pages(data: DataSet) -> Iterator[bytes]:
    random = Random(_SEED)
    variety = min(_VARIETY, _VARIETY_BYTES // data.size, data.documents)
    contents = [bson.encode(fields(random, data.size))[4:] for _ in range(variety)]
    step = PAGE_BYTES // data.size
    for first in range(0, data.documents, step):
        numbers = range(first, min(first + step, data.documents))
        yield b"".join(_with_id(number, contents[number % variety]) for number in numbers)


def _with_id(number: int, content: bytes) -> bytes:
    return int32(4 + 9 + len(content)) + _id_field(number) + content


def _id_field(number: int) -> bytes:
    return b"\x10_id\0" + int32(number)
