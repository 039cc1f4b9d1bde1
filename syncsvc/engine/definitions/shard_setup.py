"""Shards the destination's collections when they are created, and distributes databases over shards; idempotent.

When an empty collection is sharded, each range of its shard key is created on the shard that a zone assigns it to, so
that nothing has to be moved. For that moment only, this module defines temporary zones, one for each shard. The
distribution is left to the server if the option `presplit` is none, if users have defined zones for the collection, or
if there are fewer than two ranges. The ranges follow the chunks of the source, or are computed from a sample. A sample
yields only one range if it contains no value that can be a bound, as when it is empty, or the shard key begins with a
hashed field.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import Any

from bson.binary import Binary
from pymongo.errors import OperationFailure

from syncsvc.engine.definitions.source_lookup import find_on_source
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.metadata import sync_name
from syncsvc.options import Presplit
from syncsvc.rules import sharding
from syncsvc.rules.sharding import Placement, Range
from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.inventory import SPLITTABLE, extent
from verifier.cluster.namespace import Namespace, is_user_database
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.reading import read
from verifier.cluster.sampling import MOST_READ, largest_sample
from verifier.cluster.specification import CollectionSpec, Document
from verifier.runtime.tasks import StopToken

# The number of ranges per shard that are computed from a sample. With several, neighbouring keys, which often arrive
# together, are spread over the shards.
_RANGES_A_SHARD = 4
_SAMPLE_SIZE = 2000
_SIMPLE = {"locale": "simple"}


class Sharding:
    """Shards collections of the destination, and assigns primary shards to databases.

    The methods raise the driver's errors, and `Cancelled`.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._destination_client = context.destination_client
        self._destination_writer = context.destination_writer
        self._stop = stop
        # Each sync to the cluster uses its own zone names, so that it does not remove the zones of another sync.
        name = sync_name(context.metadata.name)
        self._zone = "syncsvc." if name is None else f"syncsvc-{name}."

    def assign_primary(self, database: str) -> None:
        """Create a database, unless it exists, on the shard that is primary for the fewest user databases."""
        databases = {each["_id"]: each["primary"] for each in self._config("databases")}
        if database in databases:
            return
        load = Counter(shard for name, shard in databases.items() if is_user_database(name))
        shard = min(self._shards(), key=lambda name: (load[name], name))
        try:
            self._destination_writer.administer({"enableSharding": database, "primaryShard": shard})
        except OperationFailure as error:
            # The database exists on another shard: someone has created it, or a collection in it, meanwhile.
            if error.code != failures.NAMESPACE_EXISTS:
                raise
        self._context.observe(Point.PRIMARY_ASSIGNED, database)

    def is_sharded(self, namespace: Namespace) -> bool:
        return bool(self._config("collections", {"_id": str(namespace), **SPLITTABLE}))

    def shard(self, definition: CollectionSpec, by_uuid: dict[str, Any]) -> None:
        """Shard an empty collection. It must already have an index that supports the shard key.

        `by_uuid` contains the field `collectionUUID` of the command, or is empty (see `Catalog`).
        This method may define zones, and does not remove them: call `remove_zones` afterwards, even after an error.
        """
        namespace, key = definition.namespace, definition.shard_key
        assert key is not None
        # Zones that a killed process left behind may overlap.
        self.remove_zones()
        self._set_zones(namespace, self._placements(definition))
        self._context.observe(Point.ZONES_SET, str(namespace))
        command = {
            "shardCollection": str(namespace),
            "key": key["key"],
            "unique": key["unique"],
            "collation": _SIMPLE,
            **by_uuid,
        }
        self._destination_writer.run("admin", command)
        self._context.observe(Point.COLLECTION_SHARDED, str(namespace))

    def _placements(self, definition: CollectionSpec) -> list[Placement]:
        """Return the shard key ranges to create, each with its shard; an empty list leaves that to the server."""
        presplit = self._context.run.record.options.presplit
        if presplit is Presplit.NONE:
            return []
        if presplit is Presplit.SOURCE and (chunks := self._source_chunks(definition)):
            return sharding.carried(chunks, self._shards())
        return [*zip(self._ranges(definition), cycle(self._shards()))]

    def _source_chunks(self, definition: CollectionSpec) -> list[tuple[Range, str]]:
        """Return the chunks of the collection on the source, in order, with their shards.

        The list is empty unless the source has the collection now, sharded by the same key as `definition`.
        """
        assert definition.uuid is not None and definition.shard_key is not None
        known = {"uuid": Binary(definition.uuid, 4)}
        collections = self._config_of(self._context.source_client, "collections", known)
        wanted = [*definition.shard_key["key"].items()]
        if not collections or [*collections[0]["key"].items()] != wanted:
            return []
        source = self._context.source_client
        return sharding.chunks_of(self._config_rows(source, "chunks", known, {"min": 1}))

    def _ranges(self, definition: CollectionSpec) -> list[Range]:
        key = definition.shard_key
        assert key is not None
        count = _RANGES_A_SHARD * len(self._shards())
        return sharding.ranges(key, self._sample(definition, key), count)

    def _sample(self, definition: CollectionSpec, shard_key: Document) -> list[bytes]:
        """Sample documents of the source, and return the values of their shard key fields, sorted.

        The list has one BSON document for each sampled document, with only the fields before a hashed field. It is
        empty if the first field is hashed, or if the source no longer has the collection, or has no documents in it. If
        the server cannot draw a random sample, the first documents that it returns are used.
        """
        fields = sharding.sampled_fields(shard_key)
        if not fields or definition.uuid is None:
            return []
        record = self._context.registry.get(definition.uuid)
        assert record is not None
        # The destination may keep the collection under another name.
        database = record.source_name.database
        found = find_on_source(self._context, database, definition.uuid, self._stop)
        if found is None:
            return []
        size = self._sample_size(found)
        try:
            return self._read(found.namespace, [{"$sample": {"size": size}}, *_only(fields)])
        except OperationFailure as error:
            if error.code != failures.NO_MORE_SAMPLES:
                raise
        return self._read(found.namespace, [{"$limit": size}, *_only(fields)])

    def _sample_size(self, found: CollectionSpec) -> int:
        """Return the number of documents to sample; for a large collection, few enough to avoid a full scan."""
        whole = read(lambda: extent(self._context.source_client, found.storage), self._stop)
        if whole.bytes <= MOST_READ:
            return _SAMPLE_SIZE
        return min(_SAMPLE_SIZE, largest_sample(whole.documents, whole.shards))

    def _read(self, namespace: Namespace, pipeline: list[Document]) -> list[bytes]:
        command = {
            "aggregate": namespace.collection,
            "pipeline": pipeline,
            "allowDiskUse": True,
            "collation": _SIMPLE,
        }
        return self._rows(self._context.source_client, namespace.database, command)

    def _set_zones(self, namespace: Namespace, placements: list[Placement]) -> None:
        if len(placements) < 2 or self._has_zones(namespace):
            return
        for shard in self._shards():
            self._destination_writer.administer(
                {"addShardToZone": shard, "zone": self._zone + shard}
            )
        for (least, beyond), shard in placements:
            self._place_range(str(namespace), least, beyond, self._zone + shard)

    def _has_zones(self, namespace: Namespace) -> bool:
        """Return whether users have already defined zones for a collection, by which the server distributes it."""
        return bool(self._config("tags", {"ns": str(namespace)}))

    def remove_zones(self) -> None:
        """Remove the zones that this sync has defined (also in an earlier process) from all collections and shards."""
        for each in self._config("tags"):
            if each["tag"].startswith(self._zone):
                self._place_range(each["ns"], each["min"], each["max"], None)
        for shard in self._config("shards"):
            for zone in shard.get("tags", ()):
                if zone.startswith(self._zone):
                    command = {"removeShardFromZone": shard["_id"], "zone": zone}
                    self._destination_writer.administer(command)

    def _place_range(self, name: str, least: Document, beyond: Document, zone: str | None) -> None:
        command = {"updateZoneKeyRange": name, "min": least, "max": beyond, "zone": zone}
        self._destination_writer.administer(command)

    def _shards(self) -> list[str]:
        rows = self._config("shards")
        return sorted(each["_id"] for each in rows if not each.get("draining"))

    def _config(self, collection: str, query: Document | None = None) -> list[dict[str, Any]]:
        """Return the documents of a collection of the destination's config database that match `query`."""
        return self._config_of(self._destination_client, collection, query or {})

    def _config_of(self, client: Client, collection: str, query: Document) -> list[dict[str, Any]]:
        return [rawbson.decode(each) for each in self._config_rows(client, collection, query)]

    def _config_rows(
        self, client: Client, collection: str, query: Document, order: Document | None = None
    ) -> list[bytes]:
        command = {
            "find": collection,
            "filter": query,
            "sort": order or {},
            "readConcern": {"level": "majority"},
        }
        return self._rows(client, "config", command)

    def _rows(self, client: Client, database: str, command: dict[str, Any]) -> list[bytes]:
        def rows() -> list[bytes]:
            with RawCursor(client, database, command) as cursor:
                return [bytes(each) for page in cursor.pages() for each in page.documents()]

        return read(rows, self._stop)


def _only(fields: list[str]) -> list[Document]:
    """Return the aggregation stages that reduce each document to the values at the paths `fields`, and sort by them.

    The values become the fields field0, field1 and so on. The value of a missing field becomes null.
    """
    names = {f"field{number}": f"${name}" for number, name in enumerate(fields)}
    return [
        {
            "$project": {
                "_id": 0,
                **{name: {"$ifNull": [path, None]} for name, path in names.items()},
            }
        },
        {"$sort": dict.fromkeys(names, 1)},
    ]
