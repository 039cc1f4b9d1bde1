"""Foreign data on a destination: collections and views of other applications, which no sync may touch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from bson.raw_bson import RawBSONDocument

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.document_merge import RAW
from syncsvc.sandbox.equality import compare_clusters
from syncsvc.sandbox.replica_set import Client
from tests.support.pair import assert_none

_OF_SERVERS = ("admin", "config", "local")


def create_foreign(client: Client, database: str = "d") -> set[str]:
    """Create collections of several kinds and a view in `database`, and `only_theirs.c`; return all namespaces."""
    there = client[database]
    there.theirs.insert_many({"_id": n, "text": "x" * n} for n in range(200))
    there.theirs.create_index("text", name="by text")
    there.create_collection("their empty one")
    there.create_collection("their capped one", capped=True, size=4096)
    there["their capped one"].insert_one({"_id": "kept"})
    there.create_collection("their series", timeseries={"timeField": "at"})
    there.create_collection("their view", viewOn="theirs", pipeline=[{"$match": {"_id": 1}}])
    client["only_theirs"].c.insert_one({"_id": "alone"})
    names = ("theirs", "their empty one", "their capped one", "their series", "their view")
    return {*(f"{database}.{each}" for each in names), "only_theirs.c"}


def content(client: Client, namespaces: Collection[str]) -> dict[str, Any]:
    """Return the raw listCollections entry, with UUID and options, of each existing namespace, by its name.

    The value of a collection also contains its raw documents and the names of its indexes. A time series has two
    entries: one with its measurements, and one for its buckets.
    """
    found: dict[str, Any] = {}
    for name in namespaces:
        database, _, collection = name.partition(".")
        for row in _rows(client, database, collection):
            found[f"{database}.{row['name']}"] = row.raw, *_stored(client, database, row)
    return found


def _rows(client: Client, database: str, collection: str) -> list[RawBSONDocument]:
    names = {"$in": [collection, f"system.buckets.{collection}"]}
    command = {"listCollections": 1, "filter": {"name": names}}
    cursor = client[database].command(command, codec_options=RAW)["cursor"]
    return sorted(cursor["firstBatch"], key=lambda each: str(each["name"]))


def _stored(client: Client, database: str, row: RawBSONDocument) -> tuple[Any, ...]:
    if row["type"] == "view":
        return ()
    there = client[database].get_collection(row["name"], RAW)
    found: list[Any] = list(there.find())
    documents = sorted(each.raw for each in found)
    return documents, sorted(map(str, there.index_information()))


def assert_synced(
    source: Client,
    destination: Client,
    foreign: Collection[str],
    shard_keys: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Fail if the clusters differ, apart from the foreign namespaces, which must exist only on the destination.

    `shard_keys` maps namespaces to the shard keys that the start of the sync has requested.
    """
    result = compare_clusters(source, destination, shard_keys, foreign)
    assert_none(result.differences)
    assert result.namespaces > 0


def user_namespaces(client: Client) -> set[str]:
    """Return the names of all collections and views, except those of the server and of the metadata of syncs."""
    return {
        f"{database}.{name}"
        for database in client.list_database_names()
        if database not in _OF_SERVERS and not database.startswith(METADATA_DATABASE)
        for name in client[database].list_collection_names()
        if not name.startswith("system.")
    }
