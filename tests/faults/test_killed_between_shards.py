"""Kills the daemon in syncs between sharded clusters, with renamed namespaces or with document filters.

All kills of a test happen in one sync: each restarted process is killed at the next point.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.integration import test_document_filters as selected
from tests.support.daemon import Daemon
from tests.support.filtered import assert_selected
from tests.support.pair import SHARDED, Pair, across
from tests.support.renamed import assert_renamed, remap
from tests.support.writes import AnyClient

pytestmark = [pytest.mark.full, across(SHARDED)]

Kill = tuple[Point, str]
DURING_THE_COPY: list[Kill] = [(Point.COLLECTION_CREATED, ""), (Point.BATCH_WRITTEN, "")]
NAMES = {"shop.orders": "store.sales", "hr": "people"}


def _kill_by_turns(daemon: Daemon, kills: Iterable[Kill], body: dict[str, Any]) -> None:
    """Run the daemon with this start request until it is killed, once for each of the `kills`."""
    for kill in kills:
        daemon.kill_at(*kill)
        daemon.run()
        daemon.post_unanswered("start", body)
        daemon.wait_until_killed()


def _among_events(*copied_again: str) -> list[Kill]:
    """Return the kills during change event application.

    `copied_again` contains the destination names of the collections that are copied again because of a rename.
    """
    return [
        (Point.EVENTS_APPLIED, ""),
        *((Point.BATCH_WRITTEN, name) for name in copied_again),
        (Point.DEFINITION_APPLIED, ""),
    ]


def _write(client: AnyClient) -> None:
    for c in (client.shop.orders, client.shop.plain, client.hr.staff, client.hr.crew):
        c.insert_many({"_id": f"new {n}", "n": 1000 + n} for n in range(10))
        c.update_many({"n": {"$lt": 20}}, {"$set": {"changed": True}})
        c.delete_many({"n": {"$gte": 30, "$lt": 40}})


def _redefine(client: AnyClient) -> None:
    client.hr.staff.create_index("changed")
    client.hr.crew.rename("gang")
    client.hr.gang.insert_one({"_id": "after the rename", "n": 2001})
    # On the destination, both renames lead to another database, so the collections are copied again.
    client.shop.orders.rename("old orders")
    client.shop["old orders"].insert_one({"_id": "after the rename", "n": 2002})
    client.shop.plain.rename("orders")
    client.shop.orders.update_many({"n": {"$lt": 5}}, {"$set": {"renamed": True}})


def test_a_sync_with_new_names_continues_after_kills(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    for name in ("shop.orders", "hr.staff"):
        pair.shard(name, {"n": 1})
    for c in (client.shop.orders, client.shop.plain, client.hr.staff, client.hr.crew):
        c.create_index("n")
        c.insert_many({"_id": n, "n": n, "pad": "p" * 200} for n in range(300))
    body = daemon.start_body(namespaceRemap=remap(NAMES))
    daemon.kill()
    _kill_by_turns(daemon, DURING_THE_COPY, body)
    _write(client)
    _redefine(client)
    _kill_by_turns(daemon, _among_events("shop.old orders", "store.sales"), body)
    client.shop.orders.insert_one({"_id": "last", "n": 3000})
    daemon.run()
    daemon.commit()
    assert_renamed(pair, NAMES)


def test_a_sync_with_selected_documents_continues_after_kills(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    pair.shard("shop.orders")
    # A unique index would have to begin with the shard key.
    selected.fill(client, unique=False)
    body = daemon.start_body(documentFilter=selected.elements())
    daemon.kill()
    _kill_by_turns(daemon, DURING_THE_COPY, body)
    selected.change(client)
    # These names have other document filters, so the collections are copied again.
    client.shop.orders.rename("archive")
    client.shop.archive.insert_one({"_id": "in the archive", "region": "us", "n": -7001})
    client.shop.complete.rename("orders")
    client.shop.orders.update_one({"_id": 7}, {"$set": {"region": "us"}})
    _kill_by_turns(daemon, _among_events("shop.archive", "shop.orders"), body)
    client.shop.orders.insert_one({**selected.order(3001), "_id": "last", "region": "eu"})
    daemon.run()
    daemon.commit()
    assert_selected(pair, selected.QUERIES)
    assert pair.destination.client.shop.archive.count_documents({}) > 400
