"""What the config server knows of shards, databases and collections. Nothing is remembered but the shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bson import ObjectId, Timestamp

from tests.support.sharded.wire import Document, fields, refusal

NAMESPACE_NOT_FOUND = 26
_UNSHARDED = {"e": ObjectId(bytes(12)), "t": Timestamp(0, 0), "v": Timestamp(0, 0)}


@dataclass(frozen=True)
class Shard:
    name: str
    address: str


@dataclass(frozen=True)
class Owner:
    """A shard that has documents of a collection, and the fields with which a command proves to know that."""

    shard: Shard
    versions: Document


class Catalog:
    """`run` carries out a command on the config server."""

    def __init__(self, run: Callable[[Document], Document]) -> None:
        self._run = run

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards, in the order of their names. Each has one member."""
        rows = self._find("shards", {}, {"_id": 1})
        return [Shard(row["_id"], row["host"].partition("/")[2]) for row in rows]

    def primary(self, database: str) -> Owner:
        """Where the unsharded collections of a database are. Raises Refused where there is no such database."""
        for row in self._find("databases", {"_id": database}):
            return Owner(self._shard(row["primary"]), {"databaseVersion": row["version"]})
        raise refusal(NAMESPACE_NOT_FOUND, f"database {database} not found")

    def create_database(self, database: str) -> None:
        """Harmless where it is there."""
        self._run(
            {
                "_configsvrCreateDatabase": database,
                "$db": "admin",
                "writeConcern": {"w": "majority"},
            }
        )

    def owners(self, database: str, collection: str) -> list[Owner]:
        """The shards with chunks of a collection, that of the lowest chunk first; of an unsharded one the primary."""
        for row in self._find("collections", {"_id": f"{database}.{collection}"}):
            chunks = self._find("chunks", {"uuid": row["uuid"]}, {"min": 1})
            newest: dict[str, Any] = {}
            for chunk in chunks:
                newest[chunk["shard"]] = max(
                    chunk["lastmod"], newest.get(chunk["shard"], Timestamp(0, 0))
                )
            version = {"e": row["lastmodEpoch"], "t": row["timestamp"]}
            return [
                Owner(self._shard(shard), {"shardVersion": {**version, "v": lastmod}})
                for shard, lastmod in newest.items()
            ]
        primary = self.primary(database)
        return [Owner(primary.shard, {**primary.versions, "shardVersion": _UNSHARDED})]

    def _shard(self, name: str) -> Shard:
        return next(each for each in self.shards if each.name == name)

    def _find(
        self, collection: str, query: Document, sort: Document | None = None
    ) -> list[Document]:
        reply = self._run(
            {
                "find": collection,
                "$db": "config",
                "filter": query,
                "sort": sort or {},
                # All rows at once: the tests have few chunks.
                "batchSize": 100_000,
                "singleBatch": True,
                "readConcern": {"level": "majority"},
            }
        )
        return [fields(bytes(row.raw)) for row in reply["cursor"]["firstBatch"]]
