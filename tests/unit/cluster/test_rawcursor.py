"""Replies are read as bytes, and their pages kept at one size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson import Int64, Timestamp
from pymongo import MongoClient

from verifier.cluster import rawcursor
from verifier.cluster.rawcursor import Page, RawCursor

DOCUMENTS: list[dict[str, Any]] = [{"_id": 1, "a": "x"}, {"_id": 2}]


@pytest.fixture
def cursor() -> Iterator[RawCursor]:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        yield RawCursor(client, "shop", {"find": "orders"})


def reply(name: str, documents: list[dict[str, Any]], **fields: Any) -> bytes:
    batch = {"id": Int64(77), "ns": "shop.orders.old", name: documents, **fields}
    times = {"$clusterTime": {}, "operationTime": Timestamp(1700000000, 5)}
    return bson.encode({"cursor": batch, "ok": 1.0, **times})


def test_a_page_holds_documents_token_and_time(cursor: RawCursor) -> None:
    raw = reply("firstBatch", DOCUMENTS, postBatchResumeToken={"$recordId": Int64(9)})
    page = cursor._page(raw, b"firstBatch")
    assert [bson.decode(each) for each in page.documents()] == DOCUMENTS
    assert page.resume == {"$recordId": 9}
    assert page.time == Timestamp(1700000000, 5)


def test_the_fields_of_a_reply_may_come_in_any_order(cursor: RawCursor) -> None:
    batch = {"postBatchResumeToken": {"a": 1}, "nextBatch": DOCUMENTS, "ns": "d.c", "id": Int64(0)}
    raw = bson.encode({"operationTime": Timestamp(1, 2), "ok": 1, "cursor": batch})
    page = cursor._page(raw, b"nextBatch")
    assert (len(page.documents()), page.resume, page.time) == (2, {"a": 1}, Timestamp(1, 2))


def test_token_and_time_may_be_missing(cursor: RawCursor) -> None:
    raw = bson.encode({"cursor": {"firstBatch": [], "id": Int64(0), "ns": "d.c"}})
    page = cursor._page(raw, b"firstBatch")
    assert (page.documents(), page.resume, page.time) == ([], None, None)


def test_the_next_page_is_asked_of_the_same_cursor(cursor: RawCursor) -> None:
    cursor._page(reply("firstBatch", DOCUMENTS), b"firstBatch")
    command = cursor._get_more()
    assert (command["getMore"], command["collection"]) == (77, "orders.old")
    assert next(iter(command)) == "getMore" and "maxTimeMS" not in command


def page_of(size: int, count: int) -> bytes:
    return reply("firstBatch", [{"_id": n, "x": "x" * size} for n in range(count)])


@pytest.mark.parametrize(
    "size, count, lowest, highest",
    [(3000, 1000, 900, 1100), (100, 1000, 20_000, 30_000), (0, 0, 50_000, 50_000)],
)
def test_pages_settle_at_their_size(
    cursor: RawCursor, size: int, count: int, lowest: int, highest: int
) -> None:
    cursor._page(page_of(size, count), b"firstBatch")
    assert lowest <= cursor._get_more()["batchSize"] <= highest


def test_a_document_larger_than_a_page_comes_alone(
    cursor: RawCursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rawcursor, "PAGE_BYTES", 10)
    cursor._page(page_of(100, 1000), b"firstBatch")
    assert cursor._get_more()["batchSize"] == 1


def test_a_size_that_is_given_stays() -> None:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        cursor = RawCursor(client, "admin", {"aggregate": 1}, batch_size=500, await_ms=200)
        cursor._page(reply("firstBatch", DOCUMENTS), b"firstBatch")
        command = cursor._get_more()
    assert (command["batchSize"], command["maxTimeMS"]) == (500, 200)


def test_equal_documents_are_equal_bytes_whatever_lies_around_them() -> None:
    one, other = (
        bson.encode({"firstBatch": DOCUMENTS}),
        bson.encode({"x": 1, "firstBatch": DOCUMENTS, "y": 2}),
    )
    pages = [Page(raw, raw.index(b"firstBatch\0") + 11, None, None) for raw in (one, other)]
    assert pages[0].array_bytes == pages[1].array_bytes
    assert bson.decode(pages[0].array_bytes) == {"0": DOCUMENTS[0], "1": DOCUMENTS[1]}
