"""Compares a source with a destination that contains only selected documents. Shares no code with the product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from tests.support.pair import Pair, Side

_NOT_OF_USERS = ("admin", "config", "local", "mongosync_reserved_for_internal_use")
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


def assert_selected(pair: Pair, queries: Mapping[str, dict[str, Any]]) -> None:
    """Fail unless the destination contains the source's collections, with exactly the documents that match the queries.

    `queries` maps namespaces to queries; a collection without a query must be complete. All indexes
    of the source must exist; other indexes on the destination, such as one for the shard key, are allowed.
    """
    names = _collections(pair.source)
    assert _collections(pair.destination) == names
    assert names
    for name in sorted(names):
        assert _documents(pair.destination, name, {}) == _documents(
            pair.source, name, queries.get(name, {})
        ), name
        wanted = _indexes(pair.source, name)
        # A sharded destination has an index for the shard key, too.
        found = _indexes(pair.destination, name)
        assert {each: found.get(each) for each in wanted} == wanted, name


def _collections(side: Side) -> set[str]:
    return {
        f"{database}.{collection}"
        for database in side.client.list_database_names()
        if database not in _NOT_OF_USERS
        for collection in side.client[database].list_collection_names()
        if not collection.startswith("system.")
    }


def _documents(side: Side, name: str, query: dict[str, Any]) -> list[bytes]:
    database, _, collection = name.partition(".")
    found: list[Any] = list(side.client[database].get_collection(collection, _RAW).find(query))
    return sorted(each.raw for each in found)


def _indexes(side: Side, name: str) -> Any:
    database, _, collection = name.partition(".")
    return side.client[database][collection].index_information()
