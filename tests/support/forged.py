"""Imitates newer servers: adds change events, hides drop events, or adds an index to new time-series collections.

MongoDB reports reshardings from 6.0.14 on, and runs `$out` into a time-series collection from 7.0.3 on. A test creates
a collection whose name contains the event; a prepared daemon parses the `create` event of this collection as the forged
event. So the position of the forged event in the change stream, and its resume token, are real.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from bson.binary import UUID_SUBTYPE, Binary

from syncsvc.engine.events import tail
from syncsvc.sandbox.replica_set import Client
from verifier.cluster.events import DataEvent, DefinitionEvent, Fragment
from verifier.cluster.namespace import Namespace
from verifier.cluster.writer import ClusterWriter

_RESHARDING = "forged resharding of "
_OUT = "forged out of "


def uuid_of(client: Client, name: str) -> bytes:
    """Return the UUID of the collection with the namespace `name`."""
    database, _, collection = name.partition(".")
    (found,) = client[database].list_collections(filter={"name": collection})
    return bytes(found["info"]["uuid"])


def report_resharding(client: Client, name: str, uuid: bytes) -> None:
    """Report in the change stream that the collection `name`, which had this UUID before, was resharded."""
    database, _, collection = name.partition(".")
    _mark(client, database, f"{_RESHARDING}{uuid.hex()} {collection}")


def report_out(client: Client, name: str, replaced: bytes) -> None:
    """Report in the change stream that `$out` has replaced the buckets of the time-series collection `name`.

    `replaced` is the UUID of the earlier buckets. The current buckets must be the ones that `$out` would have written.
    """
    database, _, collection = name.partition(".")
    current = uuid_of(client, str(Namespace(database, collection).buckets))
    _mark(client, database, f"{_OUT}{replaced.hex()} {current.hex()} {collection}")


def _mark(client: Client, database: str, marker: str) -> None:
    client[database].create_collection(marker)
    client[database].drop_collection(marker)


def obey() -> None:
    """Make change event application in this process parse the forged events."""
    parse = tail.parse_event  # type: ignore[attr-defined]

    def parse_event(raw: bytes) -> DataEvent | DefinitionEvent | Fragment:
        event = parse(raw)
        if isinstance(event, DefinitionEvent) and event.operation == "create":
            return _forged(event)
        return event

    tail.parse_event = parse_event  # type: ignore[attr-defined]


def hide_drops() -> None:
    """Make change event application in this process ignore drop events, as if the servers had not sent them."""
    parse = tail.parse_event  # type: ignore[attr-defined]

    def parse_event(raw: bytes) -> DataEvent | DefinitionEvent | Fragment:
        event = parse(raw)
        if isinstance(event, DefinitionEvent) and event.operation == "drop":
            return event._replace(operation="endOfTransaction")
        return event

    tail.parse_event = parse_event  # type: ignore[attr-defined]


def index_time_series() -> None:
    """Make this process create time-series collections with the index that servers from 6.3 on add to them.

    From this version on, the `create` of a time-series collection with a `metaField` also creates an index on this
    field and the time (`_createDefaultTimeseriesIndex` in the source of the server).
    """
    run = ClusterWriter.run

    def run_and_index(
        self: ClusterWriter,
        database: str,
        command: dict[str, Any],
        retried: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        reply = run(self, database, command, retried, **options)
        series = command.get("timeseries", {}) if "create" in command else {}
        if "metaField" in series:
            key = {series["metaField"]: 1, series["timeField"]: 1}
            index = {"key": key, "name": "_".join(f"{name}_1" for name in key)}
            run(self, database, {"createIndexes": command["create"], "indexes": [index]})
        return reply

    ClusterWriter.run = run_and_index  # type: ignore[method-assign]


def _forged(event: DefinitionEvent) -> DefinitionEvent:
    database, collection = event.namespace
    if collection.startswith(_RESHARDING):
        uuid, _, name = collection.removeprefix(_RESHARDING).partition(" ")
        return event._replace(
            operation="reshardCollection",
            namespace=Namespace(database, name),
            collection=bytes.fromhex(uuid),
            description={},
        )
    if collection.startswith(_OUT):
        replaced, current, name = collection.removeprefix(_OUT).split(" ", 2)
        return event._replace(
            operation="rename",
            namespace=Namespace(database, f"tmp.agg_out.{uuid4()}").buckets,
            collection=bytes.fromhex(current),
            renamed=Namespace(database, name).buckets,
            description={"dropTarget": Binary(bytes.fromhex(replaced), UUID_SUBTYPE)},
        )
    return event
