"""Behaviours that create and drop collections and databases."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from pymongo.errors import OperationFailure

from tests.support.behaviours.behaviour import (
    AnyDatabase,
    behaviour,
    beside,
    documents,
    few_documents,
    indexed,
    nothing,
    use,
)

_FAR = datetime(2099, 1, 1, tzinfo=UTC)


@behaviour(fill=nothing)
def create_collections(db: AnyDatabase) -> None:
    db.create_collection("explicit")
    use(db.explicit, "first")
    use(db.implicit, "first")
    db.create_collection("empty")


@behaviour(fill=nothing)
def create_capped(db: AnyDatabase) -> None:
    db.create_collection("few", capped=True, size=4096, max=20)
    db.few.insert_many({"n": n} for n in range(50))
    db.few.update_one({"n": 45}, {"$set": {"n": 450}})
    db.create_collection("small", capped=True, size=5001)
    db.small.insert_many({"_id": 100 - n, "pad": "p" * 300} for n in range(50))
    db.small.delete_one({"_id": 55})


@behaviour(fill=nothing)
def create_clustered(db: AnyDatabase) -> None:
    clustered = {"key": {"_id": 1}, "unique": True}
    db.create_collection("plain", clusteredIndex={**clustered, "name": "my key"})
    use(db.plain, "first")
    db.create_collection("expiring", clusteredIndex=clustered, expireAfterSeconds=10**8)
    db.expiring.insert_many({"_id": _FAR + timedelta(seconds=n)} for n in range(10))
    db.expiring.update_one({"_id": _FAR}, {"$set": {"n": 1}})
    db.expiring.delete_one({"_id": _FAR + timedelta(seconds=3)})


@behaviour(fill=nothing)
def create_collated(db: AnyDatabase) -> None:
    db.create_collection("c", collation={"locale": "en", "strength": 2})
    db.c.insert_many({"_id": letter, "s": letter} for letter in "aBcD")
    db.c.delete_one({"_id": "A"})
    db.c.insert_one({"_id": "A", "s": 1})
    db.c.update_one({"_id": "b"}, {"$set": {"s": 2}})
    db.c.replace_one({"_id": "C"}, {"s": 3})
    db.create_collection("simple", collation={"locale": "simple"})
    use(db.simple, "first")


@behaviour(fill=nothing)
def create_validated(db: AnyDatabase) -> None:
    """Create collections with validators, and documents that violate the validators."""
    db.create_collection(
        "strict",
        validator={"n": {"$type": "int"}},
        validationLevel="strict",
        validationAction="error",
    )
    db.strict.insert_one({"_id": 1, "n": 1})
    db.strict.insert_one({"_id": 2, "n": "no"}, bypass_document_validation=True)
    db.strict.update_one({"_id": 1}, {"$set": {"n": "no"}}, bypass_document_validation=True)
    db.create_collection(
        "moderate",
        validator={"$jsonSchema": {"required": ["n"], "properties": {"n": {"bsonType": "int"}}}},
        validationLevel="moderate",
        validationAction="warn",
    )
    db.moderate.insert_one({"_id": 1, "n": "warned"})


@behaviour(fill=nothing)
def create_with_images(db: AnyDatabase) -> None:
    db.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    use(db.c, "first")
    db.create_collection("without", changeStreamPreAndPostImages={"enabled": False})


@behaviour(fill=nothing)
def create_with_storage_options(db: AnyDatabase) -> None:
    def engine(configuration: str) -> dict[str, object]:
        return {"wiredTiger": {"configString": configuration}}

    db.create_collection("compressed", storageEngine=engine("block_compressor=zlib"))
    use(db.compressed, "first")
    defaults = {"storageEngine": engine("prefix_compression=false")}
    db.create_collection("indexed", indexOptionDefaults=defaults)
    db.indexed.create_index("n")
    db.indexed.create_index("m", storageEngine=engine("prefix_compression=true"))
    use(db.indexed, "first")


@behaviour(fill=nothing)
def create_with_an_old_id_index(db: AnyDatabase) -> None:
    db.command({"create": "c", "idIndex": {"key": {"_id": 1}, "name": "_id_", "v": 1}})
    use(db.c, "first")


def _auto_indexed(db: AnyDatabase) -> None:
    db.command({"create": "c", "capped": True, "size": 8192, "autoIndexId": True})
    use(db.c, "first")


@behaviour(fill=_auto_indexed)
def create_with_auto_index_id(db: AnyDatabase) -> None:
    _auto_indexed(beside(db))


def _use_names_that_the_driver_refuses(db: AnyDatabase, tag: str = "before") -> None:
    for name in (f"{tag}..b", f"{tag}."):
        db.command({"insert": name, "documents": [{"_id": n, "n": n} for n in range(4)]})
        db.command({"createIndexes": name, "indexes": [{"key": {"n": 1}, "name": "n"}]})
        db.command({"update": name, "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": tag}}}]})
        db.command({"delete": name, "deletes": [{"q": {"_id": 2}, "limit": 1}]})


@behaviour(fill=_use_names_that_the_driver_refuses)
def create_with_odd_names(db: AnyDatabase) -> None:
    """Create collections with unusual names; some look like the names of the server's temporary collections."""
    names = ("a.b.c", "with space", "ünïcödé", "1", "a/b\\c", "no system.here", "n" * 200)
    temporary = ("tmp.agg_out.mine", "tmpAbCdE.convertToCapped.c", "tmp12345.renameCollection")
    for name in (*names, *temporary):
        use(db[name], "first")
    _use_names_that_the_driver_refuses(db, "after")
    db.command({"update": "before.", "updates": [{"q": {"_id": 3}, "u": {"$set": {"a": 3}}}]})


@behaviour(fill=few_documents)
def create_an_existing_collection(db: AnyDatabase) -> None:
    with contextlib.suppress(OperationFailure):
        db.command({"create": "c", "capped": True, "size": 4096})
    use(db.c, "after")


@behaviour(fill=nothing)
def create_many(db: AnyDatabase) -> None:
    for n in range(20):
        (db, beside(db))[n % 2][f"c{n}"].insert_many({"_id": i, "n": n} for i in range(5))
    db.drop_collection("c0")


@behaviour(fill=documents)
def drop(db: AnyDatabase) -> None:
    use(db.c, "before")
    db.drop_collection("c")
    use(db.other, "after")


@behaviour(fill=documents)
def drop_and_create_again(db: AnyDatabase) -> None:
    db.drop_collection("c")
    db.c.insert_many({"_id": n, "second": True} for n in range(25))
    db.c.create_index("second")
    db.drop_collection("other")


@behaviour(fill=indexed)
def drop_and_create_with_other_options(db: AnyDatabase) -> None:
    db.drop_collection("c")
    db.create_collection("c", capped=True, size=8192)
    use(db.c, "capped")
    db.drop_collection("c")
    db.create_collection("c", collation={"locale": "en", "strength": 1})
    db.c.create_index("n", hidden=True)
    use(db.c, "collated")


@behaviour(fill=documents)
def drop_and_create_thrice(db: AnyDatabase) -> None:
    for number in range(3):
        db.drop_collection("c")
        use(db.c, f"life {number}")
    db.drop_collection("c")
    db.c.insert_one({"_id": "fourth"})


@behaviour(fill=nothing)
def create_and_drop(db: AnyDatabase) -> None:
    for number in range(3):
        use(db.gone, f"life {number}")
        db.drop_collection("gone")
    use(db.left, "after")


@behaviour(fill=indexed)
def drop_database(db: AnyDatabase) -> None:
    db.command({"create": "view", "viewOn": "c", "pipeline": []})
    beside(db).c.insert_one({"_id": "stays"})
    db.client.drop_database(db.name)


@behaviour(fill=indexed)
def drop_database_and_create_again(db: AnyDatabase) -> None:
    db.command({"create": "view", "viewOn": "c", "pipeline": []})
    db.client.drop_database(db.name)
    use(db.c, "second life")
    db.client.drop_database(db.name)
    use(db.d, "third life")
    db.command({"create": "c", "viewOn": "d", "pipeline": []})


@behaviour(fill=few_documents)
def drop_database_and_create_in_other_case(db: AnyDatabase) -> None:
    """Drop a database, and create another one whose name differs only in case.

    A server does not accept two such databases at the same time.
    """
    db.client.drop_database(db.name)
    use(db.client[db.name.upper()].c, "upper")


@behaviour(fill=documents)
def create_in_a_transaction(db: AnyDatabase) -> None:
    """Create collections and indexes in a transaction, which the server allows for empty collections."""
    with db.client.start_session() as session, session.start_transaction():
        db.new.insert_one({"_id": 1}, session=session)
        db.create_collection("explicit", session=session)
        db.explicit.create_index("n", unique=True, session=session)
        beside(db).new.insert_one({"_id": 1}, session=session)
        db.c.update_one({"_id": 1}, {"$set": {"sub.a": "tx"}}, session=session)


@behaviour(fill=documents)
def create_and_drop_between_transactions(db: AnyDatabase) -> None:
    with db.client.start_session() as session:
        for number in range(3):
            with session.start_transaction():
                db.other.insert_one({"_id": f"tx {number}"}, session=session)
                db.c.update_one({"_id": number}, {"$set": {"tx": number}}, session=session)
            db.other.create_index(f"n{number}")
        db.drop_collection("other")
        with session.start_transaction():
            db.c.update_one({"_id": 9}, {"$set": {"tx": 9}}, session=session)
