"""Makes change events look like those of newer servers: adds events of reshardings, or hides drop events.

MongoDB reports reshardings from 6.0.14 on. A test creates a collection whose name contains the event; a prepared daemon
parses the `create` event of this collection as the forged event. So the position of the forged event in the change
stream, and its resume token, are real.
"""

from __future__ import annotations

from syncsvc.engine.events import tail
from syncsvc.sandbox.replica_set import Client
from verifier.cluster.events import DataEvent, DefinitionEvent, Fragment
from verifier.cluster.namespace import Namespace

_PREFIX = "forged resharding of "


def uuid_of(client: Client, name: str) -> bytes:
    """Return the UUID of the collection with the namespace `name`."""
    database, _, collection = name.partition(".")
    (found,) = client[database].list_collections(filter={"name": collection})
    return bytes(found["info"]["uuid"])


def report_resharding(client: Client, name: str, uuid: bytes) -> None:
    """Report in the change stream that the collection `name`, which had this UUID before, was resharded."""
    database, _, collection = name.partition(".")
    marker = f"{_PREFIX}{uuid.hex()} {collection}"
    client[database].create_collection(marker)
    client[database].drop_collection(marker)


def obey() -> None:
    """Make change event application in this process parse the forged events."""
    parse = tail.parse_event

    def parse_event(raw: bytes) -> DataEvent | DefinitionEvent | Fragment:
        event = parse(raw)
        if isinstance(event, DefinitionEvent) and event.operation == "create":
            return _forged(event)
        return event

    tail.parse_event = parse_event


def hide_drops() -> None:
    """Make change event application in this process ignore drop events, as if the servers had not sent them."""
    parse = tail.parse_event

    def parse_event(raw: bytes) -> DataEvent | DefinitionEvent | Fragment:
        event = parse(raw)
        if isinstance(event, DefinitionEvent) and event.operation == "drop":
            return event._replace(operation="endOfTransaction")
        return event

    tail.parse_event = parse_event


def _forged(event: DefinitionEvent) -> DefinitionEvent:
    database, collection = event.namespace
    if not collection.startswith(_PREFIX):
        return event
    uuid, _, name = collection.removeprefix(_PREFIX).partition(" ")
    return event._replace(
        operation="reshardCollection",
        namespace=Namespace(database, name),
        collection=bytes.fromhex(uuid),
        description={},
    )
