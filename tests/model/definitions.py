"""Generates random DDL operations, also with `$out` and `$merge`, as commands; sends nothing to a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    {"key": {"u": 1}, "unique": True, "partialFilterExpression": {"n": {"$lt": 3}}},
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
    """Return the default name of an index, as drivers generate it."""
    return "_".join(f"{field}_{kind}" for field, kind in index["key"].items())


class Definitions:
    """Generates random DDL operations. The same state of the random generator leads to the same operations."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kinds: dict[Callable[[], Operation], int] = {
            self._create: 20,
            self._make_again: 16,
            self._drop: 12,
            self._drop_database: 1,
            self._rename: 24,
            self._modify: 20,
            self._modify_index: 20,
            self._create_indexes: 30,
            self._drop_indexes: 20,
            self._create_view: 16,
            self._modify_view: 8,
            self._drop_view: 10,
            self._replace_by_result: 8,
            self._merge_result: 8,
            self._create_series: 6,
            self._modify_series: 3,
            self._index_series: 3,
            self._drop_series: 4,
            self._convert_to_capped: 4,
            self._clone_as_capped: 4,
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
        options: Document = {"capped": True, "size": self._size()}
        if self._chance(0.5):
            options["max"] = self._random.randint(3, 40)
        return options

    def _size(self) -> int:
        """Return a random size in bytes for a capped collection: a multiple of 4096, at most 20 times 4096."""
        return 4096 * self._random.randint(1, 20)

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

    def _rename(self) -> Operation:
        """Return a rename of a collection or view, sometimes to another database, to its own name or that of a view."""
        names = self._family()
        source = f"{self._near_database()}.{self._random.choice(names)}"
        target = f"{self._near_database()}.{self._random.choice(names)}"
        rename = {"renameCollection": source, "to": target, "dropTarget": self._chance(0.6)}
        return plain("admin", rename)

    def _family(self) -> Sequence[str]:
        """Return the collection names from which a rename or an `$out` takes its source and its target.

        These are either the names of collections that can be capped, or the names of other collections and of views.
        """
        return values.ORDERED if self._chance(0.3) else (*values.PLAIN * 2, *values.VIEWS)

    def _near_database(self) -> str:
        """Return a random database: the first one in three of four cases.

        This keeps most renames within one database, because the server handles them differently from renames across
        databases.
        """
        return values.DATABASES[0] if self._chance(0.75) else values.DATABASES[1]

    def _modify(self) -> Operation:
        change: Document = {}
        collection = self._collection()
        for each in values.shuffled(self._random, self._changes(collection), 2):
            change.update(each)
        return self._one({"collMod": collection, **change})

    def _changes(self, collection: str) -> list[Document]:
        validation = self._validation()
        capped: list[Document] = [
            {"cappedSize": self._size()},
            {"cappedMax": self._random.randint(3, 40)},
        ]
        clustered: list[Document] = [{"expireAfterSeconds": self._random.choice((200, "off"))}]
        return [
            *(capped if collection in values.ORDERED else clustered),
            validation,
            {"validator": validation["validator"]},
            {"validationLevel": validation["validationLevel"]},
            {"validationAction": validation["validationAction"]},
            {"changeStreamPreAndPostImages": {"enabled": self._chance(0.5)}},
            {},
        ]

    def _modify_index(self) -> Operation:
        by_name = {"name": self._name()}
        by_key = {"keyPattern": values.favoured(self._random, _INDEXES, 8)["key"]}
        change: Document = {"index": by_name if self._chance(0.7) else by_key}
        for each in values.shuffled(self._random, self._changes_of_index(), 2):
            change["index"].update(each)
        collection = self._collection()
        if self._chance(0.2):
            change.update(self._random.choice(self._changes(collection)))
        return self._one({"collMod": collection, **change})

    def _changes_of_index(self) -> list[Document]:
        return [
            {"hidden": True},
            {"hidden": False},
            {"expireAfterSeconds": self._random.randint(0, 100)},
            {"prepareUnique": True},
            {"prepareUnique": False},
            {"unique": True},
        ]

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
        names = (*values.PLAIN, *values.ORDERED, *values.VIEWS, *values.SERIES)
        return {
            "viewOn": self._random.choice(names),
            "pipeline": self._random.choice(_PIPELINES),
        }

    def _modify_view(self) -> Operation:
        return self._one({"collMod": self._random.choice(values.VIEWS), **self._view()})

    def _replace_by_result(self) -> Operation:
        names = self._family()
        target = {"db": values.database(self._random), "coll": self._random.choice(names)}
        return self._result_of(self._random.choice(names), {"$out": target})

    def _merge_result(self) -> Operation:
        into = {"db": values.database(self._random), "coll": self._random.choice(values.PLAIN)}
        matched = self._random.choice(
            ("replace", "merge", "keepExisting", [{"$set": {"merged": "$$new.n"}}])
        )
        not_matched = "insert" if matched == "keepExisting" or self._chance(0.7) else "discard"
        merge = {"into": into, "whenMatched": matched, "whenNotMatched": not_matched}
        return self._result_of(self._collection(), {"$merge": merge})

    def _result_of(self, collection: str, stage: Document) -> Operation:
        pipeline = [*self._random.choice(_PIPELINES), stage]
        return self._one({"aggregate": collection, "pipeline": pipeline, "cursor": {}})

    def _create_series(self) -> Operation:
        series: Document = {"timeField": "at", "granularity": self._granularity()}
        if self._chance(0.8):
            series["metaField"] = "place"
        options: Document = {"timeseries": series}
        if self._chance(0.3):
            options["expireAfterSeconds"] = self._seconds_of_series()
        if self._chance(0.2):
            options["collation"] = self._random.choice(_COLLATIONS)
        return self._one({"create": self._series(), **options})

    def _modify_series(self) -> Operation:
        change = self._random.choice(
            (
                {"timeseries": {"granularity": self._granularity()}},
                {"expireAfterSeconds": self._seconds_of_series()},
                {"expireAfterSeconds": "off"},
                {"index": {"name": "place_1", "hidden": self._chance(0.5)}},
            )
        )
        return self._one({"collMod": self._series(), **change})

    def _index_series(self) -> Operation:
        key = self._random.choice(({"place": 1}, {"place": 1, "at": -1}, {"at": 1}, {"n": 1}))
        index = {"key": key, "name": index_name({"key": key})}
        if self._chance(0.3):
            return self._one({"dropIndexes": self._series(), "index": index["name"]})
        return self._one({"createIndexes": self._series(), "indexes": [index]})

    def _drop_series(self) -> Operation:
        return self._one({"drop": self._series()})

    def _series(self) -> str:
        return self._random.choice(values.SERIES)

    def _granularity(self) -> str:
        return self._random.choice(("seconds", "minutes", "hours"))

    def _seconds_of_series(self) -> int:
        return self._random.randint(10**8, 10**9)

    def _convert_to_capped(self) -> Operation:
        name = self._random.choice(values.ORDERED)
        return self._one({"convertToCapped": name, "size": self._size()})

    def _clone_as_capped(self) -> Operation:
        name, to = self._random.sample(values.ORDERED, 2)
        return self._one(
            {"drop": to},
            {"cloneCollectionAsCapped": name, "toCollection": to, "size": self._size()},
        )

    def _drop_view(self) -> Operation:
        return self._one({"drop": self._random.choice(values.VIEWS)})

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
