"""Behaviours that run transactions over several documents. Each one begins and ends in the same phase of the sync."""

from __future__ import annotations

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, documents


@behaviour(fill=documents)
def committed_and_aborted_transactions(db: AnyDatabase) -> None:
    with db.client.start_session() as session:
        with session.start_transaction():
            for n in range(10):
                db.c.update_one({"_id": n}, {"$set": {"tx": n}}, session=session)
            db.other.insert_one({"_id": "tx"}, session=session)
            db.c.delete_one({"_id": 20}, session=session)
            db.c.replace_one({"_id": 21}, {"tx": 21}, session=session)
        session.start_transaction()
        db.other.insert_one({"_id": "aborted"}, session=session)
        session.abort_transaction()


@behaviour(fill=documents)
def transactions_over_the_same_documents(db: AnyDatabase) -> None:
    with db.client.start_session() as session:
        for n in range(10):
            with session.start_transaction():
                db.c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
                db.c.delete_one({"_id": 2}, session=session)
                db.c.insert_one({"_id": 2, "life": n}, session=session)
                db.c.update_one({"_id": 1}, {"$push": {"list": n}}, session=session)


@behaviour(fill=documents)
def large_transaction(db: AnyDatabase) -> None:
    """Run a transaction that is too large for one oplog entry."""
    with db.client.start_session() as session, session.start_transaction():
        for n in range(20):
            document = {"_id": f"large {n}", "blob": bytes([n]) * 1_000_000}
            db.c.insert_one(document, session=session)
        for n in range(20):
            db.c.update_one({"_id": f"large {n}"}, {"$set": {"n": n}}, session=session)
