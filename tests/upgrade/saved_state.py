"""Saves the state of both clusters while no daemon runs, and restores it to another pair of clusters.

Fresh clusters have other identities, UUIDs and times. So `restore` replaces these values in the metadata, and no
others: the identities of both clusters and the UUIDs of collections become those of the fresh clusters; timestamps and
positions in change streams become the current time and position on the fresh cluster. The writes that followed the
saved position are then repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bson import json_util
from bson.binary import Binary
from bson.timestamp import Timestamp

from syncsvc.metadata import METADATA_DATABASE
from tests.support.pair import Pair
from tests.support.writes import AnyClient

_SYSTEM = {"admin", "config", "local"}

Document = dict[str, Any]
# `source` contains the data of the source at the saved position, and `destination` the data of the destination.
# `writes` contains the later commands on the source, with their databases, and `identities` the IDs of both clusters.
State = Document


def load(path: Path) -> State:
    state: State = json_util.loads(path.read_text(), json_options=json_util.CANONICAL_JSON_OPTIONS)
    return state


def dump(state: State, path: Path) -> None:
    options = json_util.CANONICAL_JSON_OPTIONS
    path.write_text(json_util.dumps(state, json_options=options, indent=1) + "\n")


def contents(client: AnyClient) -> list[Document]:
    """Return the collections and views of a cluster with their options; collections also with indexes and documents.

    System databases, system collections and the indexes on `_id` are left out.
    """
    found = []
    for database in sorted({*client.list_database_names()} - _SYSTEM):
        # Sort views last: their collections must be created before them.
        listed = client[database].list_collections(filter={"name": {"$not": {"$regex": "^system"}}})
        for each in sorted(listed, key=lambda each: (each["type"], each["name"])):
            found.append(_content(client, database, each))
    return found


def _content(client: AnyClient, database: str, listed: Mapping[str, Any]) -> Document:
    content = {"database": database, "name": listed["name"], "options": listed["options"]}
    if listed["type"] == "view":
        return content
    collection = client[database][listed["name"]]
    indexes = [dict(each) for each in collection.list_indexes() if each["name"] != "_id_"]
    documents = list(collection.find().sort("$natural", 1))
    return {**content, "indexes": indexes, "documents": documents}


def identities(pair: Pair) -> list[str]:
    configs = (
        each.client.admin.command("replSetGetConfig") for each in (pair.source, pair.destination)
    )
    return [str(each["config"]["settings"]["replicaSetId"]) for each in configs]


def restore(state: State, pair: Pair) -> None:
    """Restore the saved state to a pair of clusters, which must be empty.

    Restore the contents, repeat the writes on the source that followed the saved position, and block user writes on the
    destination.
    """
    source, destination = pair.source.client, pair.destination.client
    users = [each for each in state["destination"] if each["database"] != METADATA_DATABASE]
    metadata = [each for each in state["destination"] if each["database"] == METADATA_DATABASE]
    _fill(source, state["source"])
    _fill(destination, users)
    replace = _replacement(state, pair, _position(source), _position(destination))
    _fill(destination, [replace(each) for each in metadata])
    for database, command in state["writes"]:
        source[database].command(command)
    # When the state was saved, the daemon had blocked user writes.
    destination.admin.command({"setUserWriteBlockMode": 1, "global": True})


def _fill(client: AnyClient, content: list[Document]) -> None:
    for each in content:
        database, name = client[each["database"]], each["name"]
        database.command({"create": name, **each["options"]})
        if each.get("indexes"):
            database.command({"createIndexes": name, "indexes": each["indexes"]})
        if each.get("documents"):
            database.command({"insert": name, "documents": each["documents"]})


def _position(client: AnyClient) -> Document:
    """Return the position in the cluster's change stream after all writes so far, in its saved form."""
    with client.watch() as stream:
        stream.try_next()
        token = stream.resume_token
    assert token is not None
    # The server's format: the cluster time follows the type.
    data = token["_data"]
    return {"token": dict(token), "time": Timestamp(int(data[2:10], 16), int(data[10:18], 16))}


def _replacement(
    state: State, pair: Pair, source: Document, destination: Document
) -> Callable[[Document], Document]:
    equals = {
        **dict(zip(state["identities"], identities(pair), strict=True)),
        **_uuids(state, pair),
    }

    def replace(value: Any, position: Document) -> Any:
        if isinstance(value, list):
            return [replace(each, position) for each in value]
        if isinstance(value, Timestamp):
            return position["time"]
        if isinstance(value, str | Binary):
            return equals.get(value, value)
        if not isinstance(value, dict):
            return value
        if value.keys() == {"token", "time"}:
            return position
        # A check saves the positions in the change streams of both clusters.
        return {
            name: replace(each, destination if name == "destination" else position)
            for name, each in value.items()
        }

    return lambda content: {**content, "documents": replace(content["documents"], source)}


def _uuids(state: State, pair: Pair) -> dict[str | Binary, Binary]:
    """Map the UUID of each collection in the saved state to the UUID of the restored collection on `pair`.

    For a state in format 6, the result contains only the collections of the source: the UUIDs of the destination's
    collections were not saved.
    """
    (registry,) = (
        each["documents"]
        for each in state["destination"]
        if (each["database"], each["name"]) == (METADATA_DATABASE, "collections")
    )
    source, destination = pair.source.client, pair.destination.client
    rows = [each for each in registry if each["_id"].subtype == 4]
    found = {
        each["_id"]: _uuid(source, each["database"], each["sourceCollection"]) for each in rows
    }
    for each in rows:
        if (saved := each.get("destinationUuid")) is not None:
            found[saved] = _uuid(destination, each["database"], each["collection"])
    return found


def _uuid(client: AnyClient, database: str, name: str) -> Binary:
    (listed,) = client[database].list_collections(filter={"name": name})
    uuid: Binary = listed["info"]["uuid"]
    return uuid
