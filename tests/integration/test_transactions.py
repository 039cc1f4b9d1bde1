"""Tests transactions on the source that are open when a phase of a sync begins or ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from pymongo.client_session import ClientSession

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import REPLICA_SETS, TO_SHARDED, Pair, across

pytestmark = pytest.mark.three_members


@contextmanager
def _open_transaction(client: writes.AnyClient, first: int) -> Iterator[ClientSession]:
    """Open a transaction that has updated, deleted and inserted five documents each.

    `first` is the lowest `_id` of the updated documents; the `_id`s of the deleted documents begin at `first + 5`.
    Yields the session, with which the caller commits or aborts the transaction.
    """
    with client.start_session() as session:
        session.start_transaction()
        for n in range(first, first + 5):
            client.d.c.update_one({"_id": n}, {"$set": {"sub.a": "tx"}}, session=session)
            client.d.c.insert_one({"_id": f"tx {n}", "pad": "p" * 2000}, session=session)
            client.d.c.update_one({"_id": f"tx {n}"}, {"$set": {"n": n}}, session=session)
            client.d.c.delete_one({"_id": n + 5}, session=session)
        yield session


@pytest.mark.in_turns
@across(REPLICA_SETS, TO_SHARDED)
def test_transactions_open_before_the_start_are_synced(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.c")
    client = pair.source.client
    client.admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 600})
    writes.fill(client)
    with ExitStack() as stack:
        begun = [stack.enter_context(_open_transaction(client, n)) for n in (0, 10, 20, 30)]
        in_copy, in_application, aborted, aborted_afterwards = begun
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start()
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            in_copy.commit_transaction()
        daemon.wait_until_committable()
        in_application.commit_transaction()
        aborted.abort_transaction()
        client.d.c.update_one({"_id": 20}, {"$set": {"sub.a": "free again"}})
        daemon.commit()
        aborted_afterwards.abort_transaction()
    pair.assert_equal()
    assert pair.destination.client.d.c.count_documents({"_id": {"$regex": "^tx"}}) == 10


def test_a_transaction_across_the_start_of_the_stream_is_synced(pair: Pair, daemon: Daemon) -> None:
    """Commit a transaction that was open when the change stream began: all of its writes must be synced."""
    client = pair.source.client
    writes.fill(client)
    with _open_transaction(client, 0) as session, daemon.held_at(Point.STARTED):
        daemon.start()
        daemon.wait_until_reached(Point.STARTED)
        session.commit_transaction()
    daemon.commit()
    pair.assert_equal()
