"""Random changes of collections, views and indexes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.model import values
from tests.model.operation import Document, Operation, plain

_COLLATIONS: tuple[Document, ...] = (
    {"locale": "en", "strength": 2},
    {"locale": "fr"},
    {"locale": "simple"},
)
_VALIDATORS: tuple[Document, ...] = (
    {"n": {"$type": "number"}},
    {"$jsonSchema": {"required": ["n"]}},
    {"$or": [{"s": {"$exists": True}}, {"n": {"$lt": 40}}]},
    {},
)
_INDEXES: tuple[Document, ...] = (
    {"key": {"n": 1}},
    {"key": {"n": -1, "a": 1}},
    {"key": {"list": 1}},
    {"key": {"sub.list": 1, "n": 1}},
    {"key": {"s": 1}, "collation": {"locale": "fr"}},
    {"key": {"s": 1}, "collation": {"locale": "simple"}},
    {"key": {"u": 1}, "unique": True, "sparse": True},
    {"key": {"u": 1}},
    {"key": {"u": 1}, "partialFilterExpression": {"n": {"$gt": 5}}},
    {"key": {"u": -1}, "unique": True, "partialFilterExpression": {"u": {"$gt": 3}}},
    {"key": {"n": 1, "u": 1}, "unique": True},
    {"key": {"u": 1, "n": 1}, "prepareUnique": True},
    {"key": {"when": 1}, "expireAfterSeconds": 100},
    {"key": {"when": 1}, "expireAfterSeconds": 100, "sparse": True},
    {"key": {"r": 1}, "hidden": True},
    {"key": {"r": 1}, "unique": True, "partialFilterExpression": {"r": {"$exists": True}}},
    {"key": {"s": "text"}, "weights": {"s": 3}, "default_language": "german"},
    {"key": {"b": "text", "n": 1}},
    {"key": {"n": "hashed"}},
    {"key": {"q": "hashed", "n": 1}},
    {"key": {"$**": 1}},
    {"key": {"$**": 1}, "wildcardProjection": {"sub": 1, "n": 1}},
    {"key": {"sub.$**": 1}},
    {"key": {"place": "2dsphere"}},
    {"key": {"place": "2d"}, "bits": 20},
)
_NAMES = ("one", "two", "three")
_PIPELINES: tuple[list[Document], ...] = (
    [],
    [{"$match": {"n": {"$gt": 3}}}],
    [{"$project": {"n": 1, "s": 1}}],
    [{"$match": {"u": {"$exists": True}}}, {"$set": {"viewed": True}}],
)


def index_name(index: Document) -> str:
    """The name that drivers give an index."""
    return "_".join(f"{field}_{kind}" for field, kind in index["key"].items())


class Definitions:
    """Makes changes of definitions up."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kinds: dict[Callable[[], Operation], int] = {
            self._create: 20,
            self._drop: 12,
            self._make_again: 16,
            self._drop_database: 1,
            self._create_indexes: 40,
            self._drop_indexes: 24,
            self._create_view: 16,
            self._drop_view: 12,
        }

    def change(self) -> Operation:
        kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
        return kind()

    def _collection(self) -> str:
        return self._random.choice((*values.PLAIN, *values.ORDERED))

    def _one(self, *commands: Document) -> Operation:
        return plain(values.database(self._random), *commands)

    def _create(self) -> Operation:
        collection = self._collection()
        return self._one({"create": collection, **self._options(collection)})

    def _options(self, collection: str) -> Document:
        options: Document = {}
        if collection in values.ORDERED:
            options.update(self._capped())
        elif self._chance(0.2):
            options["clusteredIndex"] = {"key": {"_id": 1}, "unique": True}
            if self._chance(0.5):
                options["expireAfterSeconds"] = self._random.randint(100, 1000)
        if self._chance(0.25):
            options["collation"] = self._random.choice(_COLLATIONS)
        if self._chance(0.25):
            options.update(self._validation())
        if self._chance(0.2):
            options["changeStreamPreAndPostImages"] = {"enabled": True}
        if self._chance(0.1):
            config = {"configString": "block_compressor=zlib"}
            options["storageEngine"] = {"wiredTiger": config}
        return options

    def _capped(self) -> Document:
        if self._chance(0.3):
            return {}
        options: Document = {"capped": True, "size": 4096 * self._random.randint(1, 20)}
        if self._chance(0.5):
            options["max"] = self._random.randint(3, 40)
        return options

    def _validation(self) -> Document:
        return {
            "validator": self._random.choice(_VALIDATORS),
            "validationLevel": self._random.choice(("strict", "moderate", "off")),
            "validationAction": self._random.choice(("error", "warn")),
        }

    def _drop(self) -> Operation:
        return self._one({"drop": self._collection()})

    def _make_again(self) -> Operation:
        collection = self._collection()
        index = values.favoured(self._random, _INDEXES, 8)
        return self._one(
            {"drop": collection},
            {"create": collection, **self._options(collection)},
            {"createIndexes": collection, "indexes": [self._named(index)]},
        )

    def _drop_database(self) -> Operation:
        return self._one({"dropDatabase": 1})

    def _create_indexes(self) -> Operation:
        few = _INDEXES[:8] if self._chance(0.5) else _INDEXES
        indexes = [self._named(each) for each in values.shuffled(self._random, few, 3)]
        return self._one({"createIndexes": self._collection(), "indexes": indexes})

    def _named(self, index: Document) -> Document:
        name = self._random.choice(_NAMES) if self._chance(0.25) else index_name(index)
        return {**index, "name": name}

    def _drop_indexes(self) -> Operation:
        index: Any = self._name()
        if self._chance(0.1):
            index = "*"
        elif self._chance(0.2):
            index = self._random.choice(_INDEXES)["key"]
        return self._one({"dropIndexes": self._collection(), "index": index})

    def _name(self) -> str:
        names = (*(index_name(each) for each in _INDEXES), *_NAMES)
        return str(values.favoured(self._random, names, 8))

    def _create_view(self) -> Operation:
        view: Document = {"create": self._random.choice(values.VIEWS), **self._view()}
        if self._chance(0.1):
            view["collation"] = {"locale": "en"}
        return self._one(view)

    def _view(self) -> Document:
        names = (*values.PLAIN, *values.ORDERED, *values.VIEWS)
        return {
            "viewOn": self._random.choice(names),
            "pipeline": self._random.choice(_PIPELINES),
        }

    def _drop_view(self) -> Operation:
        return self._one({"drop": self._random.choice(values.VIEWS)})

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
