"""Tests a RawCursor, which returns the replies of a server as bytes, and the pages of documents in these replies.

Without a given batch size, the cursor adapts the number of documents in a page to a page size in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson import Int64, Timestamp
from pymongo import MongoClient
from pymongo.read_preferences import _ServerMode as ServerMode

from verifier.cluster.rawcursor import Page, RawCursor, next_page_size

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


def test_the_name_of_the_collection_need_not_be_utf_8(cursor: RawCursor) -> None:
    raw = reply("firstBatch", DOCUMENTS).replace(b"shop.orders.old", b"shop.orders.\xff\xff\xff")
    assert len(cursor._page(raw, b"firstBatch").documents()) == 2


@pytest.mark.parametrize(
    "size, asked, following",
    [
        (3 << 20, 1000, 1000),
        (300_000, 1000, 10_485),
        (16 << 20, 1000, 187),
        (16 << 20, 1, 1),
        (5, 1000, 50_000),
    ],
)
def test_pages_settle_at_their_size(size: int, asked: int, following: int) -> None:
    assert next_page_size(size, asked) == following


class OnePageCursor(RawCursor):
    """A cursor that sends nothing, and whose first page has the documents DOCUMENTS."""

    def _run(self, command: dict[str, Any], read_preference: ServerMode | None = None) -> bytes:
        return reply("firstBatch", DOCUMENTS)


def test_later_pages_have_the_given_size() -> None:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        cursor = OnePageCursor(client, "shop", {"find": "orders"}, page_bytes=100, first_page=2)
        pages = cursor.pages()
        first = next(pages)
    assert cursor._get_more()["batchSize"] == next_page_size(first.size, 2, 100) == 4


def page(documents: list[dict[str, Any]]) -> Page:
    raw = bson.encode({"firstBatch": documents})
    return Page(raw, raw.index(b"firstBatch\0") + 11, None, None)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 99, 100, 101, 1000, 1001])
@pytest.mark.parametrize("wrong", [-1, 0, 1, 10, 90])
def test_documents_are_counted_even_if_the_expectation_is_wrong(count: int, wrong: int) -> None:
    documents = [{"_id": number, "9": {}, "a": {"10": {}}} for number in range(count)]
    assert page(documents).count(count + wrong) == count


@pytest.mark.parametrize("hidden", [b"\x03%d\0\x05\0\0\0\0", b"\x03%d\0\x07\0\0\0\0"])
def test_nested_bytes_that_look_like_the_last_document_are_ignored(hidden: bytes) -> None:
    documents: list[dict[str, Any]] = [{"_id": 1}, {"_id": 2, "a": hidden % 7, "b": {"7": {}}}]
    assert page(documents).count(8) == 2


def test_a_given_batch_size_is_kept() -> None:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        cursor = RawCursor(client, "admin", {"aggregate": 1}, batch_size=500, await_ms=lambda: 200)
        cursor._page(reply("firstBatch", DOCUMENTS), b"firstBatch")
        command = cursor._get_more()
    assert (command["batchSize"], command["maxTimeMS"]) == (500, 200)


def test_each_get_more_may_wait_for_another_time() -> None:
    waits = iter([200, 20])
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        cursor = RawCursor(client, "admin", {"aggregate": 1}, await_ms=lambda: next(waits))
        commands = [cursor._get_more(), cursor._get_more()]
    assert [each["maxTimeMS"] for each in commands] == [200, 20]


def test_pages_with_equal_documents_are_equal_despite_other_fields() -> None:
    raws = [
        bson.encode({"firstBatch": DOCUMENTS}),
        bson.encode({"x": 1, "firstBatch": DOCUMENTS, "y": 2}),
    ]
    one, other = (Page(raw, raw.index(b"firstBatch\0") + 11, None, None) for raw in raws)
    assert one.same_documents(other) and other.same_documents(one)


@pytest.mark.parametrize(
    "documents", [[], DOCUMENTS[:1], [*DOCUMENTS, {"_id": 3}], DOCUMENTS[::-1]]
)
def test_pages_with_different_documents_are_different(documents: list[dict[str, Any]]) -> None:
    assert not page(DOCUMENTS).same_documents(page(documents))
    assert not page(documents).same_documents(page(DOCUMENTS))
