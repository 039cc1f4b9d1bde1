"""Reads a sharded cluster's metadata about shards, databases and collections. Caches only the shards' members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bson import ObjectId, Timestamp

from tests.support.sharded.wire import NAMESPACE_NOT_FOUND, Document, fields, refusal

_UNSHARDED = {"e": ObjectId(bytes(12)), "t": Timestamp(0, 0), "v": Timestamp(0, 0)}


@dataclass(frozen=True)
class Shard:
    name: str
    address: str


@dataclass(frozen=True)
class Owner:
    """A shard to which commands for a collection or a database are sent, and the version fields of such commands.

    The version fields are `shardVersion` and `databaseVersion`.
    """

    shard: Shard
    versions: Document


class Catalog:
    """Reads the metadata of a sharded cluster.

    `run` runs a command on its config server. `primary_of` returns the primary among the members of a shard.
    """

    def __init__(
        self,
        run: Callable[[Document], Document],
        primary_of: Callable[[tuple[str, ...]], str],
    ) -> None:
        self._run = run
        self._primary_of = primary_of

    @property
    def shards(self) -> list[Shard]:
        """Return all shards, sorted by name. The address of a shard is the address of its primary."""
        return [self.shard(name) for name in self._members]

    @cached_property
    def _members(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses of the members of each shard, by the name of the shard."""
        rows = self.rows("shards", {}, {"_id": 1})
        return {row["_id"]: tuple(row["host"].partition("/")[2].split(",")) for row in rows}

    def primary(self, database: str) -> Owner:
        """Return the primary shard of a database, which holds its unsharded collections.

        Raises Refused if the database does not exist.
        """
        for row in self.rows("databases", {"_id": database}):
            return Owner(self.shard(row["primary"]), {"databaseVersion": row["version"]})
        raise refusal(NAMESPACE_NOT_FOUND, f"database {database} not found")

    def create_database(self, database: str, primary: str | None = None) -> None:
        """Create a database on the primary shard `primary`; if that is None, the config server chooses the shard.

        A no-op if the database exists. Raises Refused if the database has another primary shard than `primary`.
        """
        command = {"_configsvrCreateDatabase": database, "$db": "admin"}
        if primary is not None:
            command["primaryShardId"] = primary
        self._run({**command, "writeConcern": {"w": "majority"}})

    def collection(self, namespace: str) -> Document | None:
        """Return the document of a sharded collection in config.collections; None for an unsharded collection."""
        rows = self.rows("collections", {"_id": namespace})
        return rows[0] if rows else None

    def owners(self, database: str, collection: str) -> list[Owner]:
        """Return the shards that hold chunks of a collection, ordered by their lowest chunk.

        For an unsharded collection, return the primary shard of its database. Raises Refused if the database does not
        exist.
        """
        row = self.collection(f"{database}.{collection}")
        if row is not None:
            chunks = self.rows("chunks", {"uuid": row["uuid"]}, {"min": 1})
            newest: dict[str, Any] = {}
            for chunk in chunks:
                newest[chunk["shard"]] = max(
                    chunk["lastmod"], newest.get(chunk["shard"], Timestamp(0, 0))
                )
            version = {"e": row["lastmodEpoch"], "t": row["timestamp"]}
            return [
                Owner(self.shard(shard), {"shardVersion": {**version, "v": lastmod}})
                for shard, lastmod in newest.items()
            ]
        primary = self.primary(database)
        return [Owner(primary.shard, {**primary.versions, "shardVersion": _UNSHARDED})]

    def shard(self, name: str) -> Shard:
        return Shard(name, self._primary_of(self._members[name]))

    def rows(
        self, collection: str, query: Document, sort: Document | None = None
    ) -> list[Document]:
        """Return the documents of a collection in the database `config` that match the query, sorted by `sort`."""
        reply = self._run(
            {
                "find": collection,
                "$db": "config",
                "filter": query,
                "sort": sort or {},
                # All rows in one batch: the tests have few chunks.
                "batchSize": 100_000,
                "singleBatch": True,
                "readConcern": {"level": "majority"},
            }
        )
        return [fields(bytes(row.raw)) for row in reply["cursor"]["firstBatch"]]
