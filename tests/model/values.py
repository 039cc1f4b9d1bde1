"""Generates random names, `_id`s, values and documents.

The sets of names and `_id`s are small, so operations of different threads often use the same collections and documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.model.operation import Document

DATABASES = ("m0", "m1")
APART = "m2"
# In these collections, documents may be deleted, and inserted again with the same `_id`.
PLAIN = ("a", "b", "c", "d")
# Each `_id` is used only once in these collections. Capped collections exist only under these names: if a document is
# deleted and inserted again during a sync, its position on the destination can differ (a known limit).
ORDERED = ("k", "l")
VIEWS = ("v", "w", "x")
# Time-series collections, and plain collections that are created under the same names in between.
SERIES = ("s",)

# The lowest of all values.
FIRST = MinKey()

# TTL indexes never expire documents: all dates are far in the future.
_FAR = datetime(2099, 1, 1, tzinfo=UTC)

# Some keys are equal for the server but have different bytes, others are equal under a collation.
KEYS: tuple[Any, ...] = (
    *range(8),
    1.0,
    2.0,
    1.5,
    Int64(3),
    Decimal128("2.0"),
    Decimal128("2.00"),
    float("nan"),
    -0.0,
    *("a", "A", "b", "B", "é", "e", ""),
    {"k": 1},
    {"k": 1.0},
    {"k": "a"},
    {"k": "A"},
    ObjectId("0123456789abcdef01234567"),
    ObjectId("0123456789abcdef01234568"),
    Binary(b"\x00\x01", 0),
    True,
    False,
    None,
    Timestamp(0, 0),
    Timestamp(5, 6),
    MinKey(),
    MaxKey(),
    Code("x"),
    _FAR,
    _FAR + timedelta(days=1),
)

_SCALARS: tuple[Any, ...] = (
    0,
    1,
    -7,
    1.5,
    -0.0,
    float("nan"),
    Int64(2**40),
    Decimal128("1.10"),
    "text",
    "TEXT",
    "",
    "ünïcödé \U0001f600",
    None,
    True,
    False,
    Timestamp(0, 0),
    Timestamp(9, 9),
    ObjectId("0123456789abcdef01234569"),
    Binary(b"\x00\x11\x00" * 3, 0),
    Regex("^a", "i"),
    Code("x", {"x": 1}),
    MinKey(),
    MaxKey(),
)
_POINTS: tuple[Any, ...] = (
    {"type": "Point", "coordinates": [1.5, 2.5]},
    {"type": "Point", "coordinates": [-70, 40]},
    [3, 4],
)
# Long enough to make the oplog contain diffs instead of whole documents.
PAD = "p" * 2000


def database(random: Random) -> str:
    return random.choice(DATABASES)


def key(random: Random) -> Any:
    """Return a random `_id`: in at least half of the cases one of twelve `_id`s, whose documents probably exist."""
    return favoured(random, KEYS, 12)


def scalar(random: Random) -> Any:
    return random.choice(_SCALARS)


def value(random: Random, depth: int = 0) -> Any:
    kind = random.random()
    if depth > 2 or kind < 0.6:
        return scalar(random)
    if kind < 0.8:
        return [value(random, depth + 1) for _ in range(random.randrange(5))]
    return {
        name: value(random, depth + 1)
        for name in random.sample(
            ("x", "y", "z", "x.y", "$d", "", "0", "list"), random.randrange(4)
        )
    }


def numbers(random: Random, most: int = 12) -> list[int]:
    return [random.randrange(20) for _ in range(random.randrange(most))]


def fields(random: Random) -> Document:
    """Return a random document without `_id`, with its fields in random order.

    The document contains fields that indexes, validators and updates use, and fields with unusual names.
    """
    document: Document = {
        "n": random.randrange(50),
        "s": random.choice(("one", "two words", "ONE", "zwei", "")),
        "list": numbers(random),
        "sub": {"x": value(random, 1), "y": {"z": random.randrange(9)}, "list": numbers(random, 4)},
    }
    if random.random() < 0.7:
        document["pad"] = PAD
    for name in ("q", "r", "a", "b", "a.b", "$d", "", "0"):
        if random.random() < 0.15:
            document[name] = value(random)
    if random.random() < 0.3:
        document["u"] = random.randrange(30)
    if random.random() < 0.2:
        document["when"] = _FAR + timedelta(days=random.randrange(9))
    if random.random() < 0.2:
        document["place"] = random.choice(_POINTS)
    names = list(document)
    random.shuffle(names)
    return {name: document[name] for name in names}


def favoured(random: Random, choices: Sequence[Any], few: int) -> Any:
    """Return a random element of `choices`; in at least half of the cases, one of the first `few` elements."""
    return random.choice(choices[:few] if random.random() < 0.5 else choices)


def measurements(random: Random) -> list[Document]:
    """Return random documents for a time-series collection. They share some buckets and never expire.

    Their times fit into 32 bits, because the `_id` of a bucket contains a time of 32 bits.
    """
    begin = datetime(2037, 1, 1, tzinfo=UTC) + timedelta(hours=random.randrange(4))
    return [
        {
            "at": begin + timedelta(seconds=random.randrange(5000)),
            "place": random.choice((1, "a", {"x": 1})),
            "n": random.randrange(50),
            **({"more": scalar(random)} if random.random() < 0.3 else {}),
        }
        for _ in range(random.randint(1, 8))
    ]


def shuffled(random: Random, choices: Sequence[Any], most: int) -> list[Any]:
    """Return between one and `most` different elements of `choices`, in random order."""
    return random.sample(choices, random.randint(1, most))
