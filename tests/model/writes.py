"""Generates random writes of documents, as commands; sends nothing to a server."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from bson import Timestamp

from tests.model import values
from tests.model.operation import Document, End, Operation, plain


class Writes:
    """Generates the random writes of one thread. `name` is part of each `_id` that only this thread may use."""

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self._keys_used = 0
        self._kinds: dict[Callable[[], Operation], int] = {
            self._one_insert: 20,
            self._one_update: 40,
            self._one_replace: 10,
            self._one_delete: 10,
            self._several_inserts: 6,
            self._several_updates: 8,
            self._several_deletes: 2,
            self._update_of_many: 2,
            self._delete_of_many: 1,
            self._find_and_modify: 4,
            self._hot_document: 2,
            self._key_of_another_type: 3,
            self._transaction: 5,
            self._measurements: 4,
            self._update_of_measurements: 1,
            self._delete_of_measurements: 1,
        }

    def write(self) -> Operation:
        kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
        return kind()

    def filling(self) -> Operation:
        """Return an insert of up to 20 documents into a random collection, to run before the sync starts."""

        def insert(collection: str) -> Document:
            documents = self._documents(collection, 20)
            return {"insert": collection, "documents": documents, "ordered": False}

        return self._one(insert)

    def long_transaction(self, end: End) -> Operation:
        """Return a transaction that may stay open for a long time, and ends as `end` says.

        It uses a separate database, because a transaction blocks DDL operations on the databases that it writes to.
        """
        inserts = ({"insert": name, "documents": self._documents(name, 9)} for name in ("k", "l"))
        deletes = {"delete": "k", "deletes": [{"q": self._query("k"), "limit": 1}]}
        return Operation(values.APART, (*inserts, deletes), end)

    def _documents(self, collection: str, most: int) -> list[Document]:
        return [self._document(collection) for _ in range(self._random.randint(1, most))]

    def _document(self, collection: str) -> Document:
        return {"_id": self._new_key(collection), **values.fields(self._random)}

    def _new_key(self, collection: str) -> Any:
        if collection not in values.ORDERED:
            return values.key(self._random)
        self._keys_used += 1
        return f"{self._name} {self._keys_used}"

    def _collection(self) -> str:
        # Some names are those of views: the server refuses such a write, unless a collection has replaced the view.
        names = (*values.PLAIN * 8, *values.ORDERED * 4, *values.VIEWS)
        return self._random.choice(names)

    def _query(self, collection: str) -> Document:
        if collection in values.ORDERED:
            return {"n": self._random.randrange(50)}
        return {"_id": values.key(self._random)}

    def _one(self, command: Callable[[str], Document]) -> Operation:
        return plain(values.database(self._random), command(self._collection()))

    def _one_insert(self) -> Operation:
        return self._one(self._insert)

    def _one_update(self) -> Operation:
        return self._one(self._update)

    def _one_replace(self) -> Operation:
        return self._one(self._replace)

    def _one_delete(self) -> Operation:
        return self._one(self._delete)

    def _insert(self, collection: str) -> Document:
        return {"insert": collection, "documents": [self._document(collection)]}

    def _update(self, collection: str) -> Document:
        return {"update": collection, "updates": [self._update_statement(collection)]}

    def _replace(self, collection: str) -> Document:
        statement = {
            "q": self._query(collection),
            "u": values.fields(self._random),
            # An upsert could create a random key, or reuse a key of an ordered collection.
            "upsert": collection not in values.ORDERED and self._random.random() < 0.5,
        }
        return {"update": collection, "updates": [statement]}

    def _delete(self, collection: str) -> Document:
        return {"delete": collection, "deletes": [{"q": self._query(collection), "limit": 1}]}

    def _update_statement(self, collection: str) -> Document:
        statement: Document = {
            "q": self._query(collection),
            "u": classic(self._random) if self._random.random() < 0.6 else pipeline(self._random),
        }
        if collection not in values.ORDERED and self._random.random() < 0.1:
            statement["upsert"] = True
        return statement

    def _several_inserts(self) -> Operation:
        def insert(collection: str) -> Document:
            documents = self._documents(collection, 15)
            return {"insert": collection, "documents": documents, "ordered": self._flip()}

        return self._one(insert)

    def _several_updates(self) -> Operation:
        def update(collection: str) -> Document:
            number = self._random.randint(2, 12)
            statements = [self._update_statement(collection) for _ in range(number)]
            return {"update": collection, "updates": statements, "ordered": self._flip()}

        return self._one(update)

    def _several_deletes(self) -> Operation:
        def delete(collection: str) -> Document:
            statements = [{"q": self._query(collection), "limit": 1} for _ in range(5)]
            return {"delete": collection, "deletes": statements, "ordered": self._flip()}

        return self._one(delete)

    def _update_of_many(self) -> Operation:
        def update(collection: str) -> Document:
            query = {"n": {"$gte": self._random.randrange(50)}}
            change = self._random.choice((classic, pipeline))(self._random)
            return {"update": collection, "updates": [{"q": query, "u": change, "multi": True}]}

        return self._one(update)

    def _delete_of_many(self) -> Operation:
        def delete(collection: str) -> Document:
            query = {"n": {"$lt": self._random.randrange(25)}}
            return {"delete": collection, "deletes": [{"q": query, "limit": 0}]}

        return self._one(delete)

    def _find_and_modify(self) -> Operation:
        def find_and_modify(collection: str) -> Document:
            command = {"findAndModify": collection, "query": self._query(collection)}
            if self._random.random() < 0.3:
                return {**command, "remove": True}
            return {**command, "update": classic(self._random), "new": self._flip()}

        return self._one(find_and_modify)

    def _hot_document(self) -> Operation:
        """Return one command with many updates of the same document, which the sync combines into few writes."""

        def update(collection: str) -> Document:
            query = self._query(collection)
            number = self._random.randint(20, 60)
            statements = [{"q": query, "u": classic(self._random)} for _ in range(number)]
            return {"update": collection, "updates": statements, "ordered": False}

        return self._one(update)

    def _key_of_another_type(self) -> Operation:
        """Return a transaction that deletes a document and inserts one with another `_id`.

        The server treats both `_id`s as equal, although their types or bytes differ: "a" and "A" under some collations,
        the others always.
        """
        before, after = self._random.choice(
            ((1, 1.0), (2, 2.0), (2.0, 2), ({"k": 1}, {"k": 1.0}), ("a", "A"), (0, -0.0))
        )
        collection = self._random.choice(values.PLAIN)
        commands = (
            {"delete": collection, "deletes": [{"q": {"_id": before}, "limit": 1}]},
            {"insert": collection, "documents": [{"_id": after, **values.fields(self._random)}]},
        )
        return Operation(values.database(self._random), commands, End.COMMIT)

    def _transaction(self) -> Operation:
        makers = (self._insert, self._update, self._update, self._replace, self._delete)
        number = self._random.randint(2, 8)
        commands = tuple(
            self._random.choice(makers)(self._random.choice(values.PLAIN)) for _ in range(number)
        )
        end = End.ABORT if self._random.random() < 0.2 else End.COMMIT
        return Operation(values.database(self._random), commands, end)

    def _measurements(self) -> Operation:
        series = self._random.choice(values.SERIES)
        insert = {"insert": series, "documents": values.measurements(self._random)}
        return plain(values.database(self._random), insert)

    def _update_of_measurements(self) -> Operation:
        """Return an update of the metaField of a time-series collection.

        Servers allow no other updates of such a collection.
        """
        change = {"q": {"place": "a"}, "u": {"$set": {"place": self._random.choice((2, "b"))}}}
        update = {
            "update": self._random.choice(values.SERIES),
            "updates": [{**change, "multi": True}],
        }
        return plain(values.database(self._random), update)

    def _delete_of_measurements(self) -> Operation:
        query = {"place": self._random.choice((1, 2, "a", "b"))}
        deletes = [{"q": query, "limit": 0}]
        delete = {"delete": self._random.choice(values.SERIES), "deletes": deletes}
        return plain(values.database(self._random), delete)

    def _flip(self) -> bool:
        return self._random.random() < 0.5


def classic(random: Random) -> Document:
    """Return a random update with operators such as $set. The server refuses such updates for some documents."""
    change: Document = {}
    for choices in values.shuffled(random, _operators(random), 3):
        operator, argument = random.choice(choices)
        change.setdefault(operator, {}).update(argument)
    return change


def _operators(random: Random) -> list[list[tuple[str, Document]]]:
    """Return groups of update operators with their arguments. An update must have at most one operator of each group.

    Operators of the same group can change the same field, and servers refuse such conflicts.
    """
    number = random.randrange(50)
    deep = random.choice(("sub.x", "sub.y.z", "sub.new.er", "sub.list.1", "sub.$x", "sub.0"))
    added = f"{random.choice('zyxtm')}{random.randrange(4)}"
    return [
        [
            ("$set", {"n": number}),
            ("$inc", {"n": 1}),
            ("$mul", {"n": 1.5}),
            ("$min", {"n": number}),
        ],
        [
            ("$set", {f"list.{random.randrange(14)}": number}),
            ("$push", {"list": number}),
            ("$push", {"list": {"$each": values.numbers(random), "$slice": -8}}),
            ("$push", {"list": {"$each": [number], "$position": 0, "$sort": 1}}),
            ("$addToSet", {"list": number}),
            ("$pull", {"list": {"$lt": number}}),
            ("$pop", {"list": random.choice((-1, 1))}),
        ],
        [
            ("$set", {deep: values.value(random, 1)}),
            ("$unset", {deep: 1}),
            ("$push", {"sub.list": {"x": number}}),
            ("$inc", {"sub.y.z": 2}),
        ],
        [
            ("$set", {added: values.value(random)}),
            ("$unset", {added: 1}),
            ("$rename", {added: random.choice("qr")}),
        ],
        [
            ("$set", {"a": values.value(random), "b": values.scalar(random)}),
            ("$unset", {random.choice("ab"): 1}),
        ],
        [("$set", {"s": values.scalar(random)}), ("$unset", {"s": 1})],
        [("$set", {"u": random.randrange(60)}), ("$unset", {"u": 1})],
        [("$set", {"t": Timestamp(0, 0)}), ("$currentDate", {"t": {"$type": "timestamp"}})],
        [("$unset", {"pad": 1})],
    ]


def pipeline(random: Random) -> list[Document]:
    """Return a random update pipeline, which can set fields whose names contain dots or begin with $."""
    return values.shuffled(random, _stages(random), 2)


def _stages(random: Random) -> list[Document]:
    odd = {"$literal": random.choice(("a.b", "$d", "", "x.y.z", "0", "sub.x"))}
    in_sub = {"$setField": {"field": odd, "input": "$sub", "value": {"$literal": 1}}}
    value = {"$literal": values.value(random)}
    shorter = {"$slice": ["$list", random.randint(1, 5)]}
    return [
        {"$set": {"n": random.randrange(50), "sub": {"x": value}}},
        {"$set": {"a": value}},
        {"$set": {"t": Timestamp(0, 0)}},
        {"$set": {"list": {"$cond": [{"$isArray": "$list"}, shorter, []]}}},
        {"$set": {"sub.list": {"$concatArrays": [[1], [{"y": [2]}]]}}},
        {"$set": {"sub": {"$cond": [{"$eq": [{"$type": "$sub"}, "object"]}, in_sub, {}]}}},
        {"$unset": random.choice(("a", "b", "sub.x", "sub.y", "pad", "list", "u"))},
        {"$replaceWith": {"$setField": {"field": odd, "input": "$$ROOT", "value": value}}},
        {"$replaceWith": {"$unsetField": {"field": odd, "input": "$$ROOT"}}},
        {"$replaceWith": {"$mergeObjects": [{"b": 1, "first": value}, "$$ROOT", {"n": 3}]}},
        {"$replaceWith": {"$mergeObjects": [{"_id": "$_id"}, {"$literal": values.fields(random)}]}},
    ]
