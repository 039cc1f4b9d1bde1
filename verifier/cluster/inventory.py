"""Lists what a cluster holds: collections and views with options, indexes and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bson.binary import Binary
from pymongo.errors import OperationFailure

from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.failures import COMMAND_NOT_SUPPORTED_ON_VIEW, NAMESPACE_NOT_FOUND
from verifier.cluster.filters import Selection
from verifier.cluster.namespace import Namespace, is_user_database, is_user_namespace
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.specification import CollectionSpec, Document, Kind


def _id_index(options: Document, indexes: list[Document]) -> Document:
    """The options with the `_id` index as `create` takes it; clustered collections have none."""
    for index in indexes:
        if index["name"] == "_id_" and not index.get("clustered"):
            return {**options, "idIndex": index}
    return options


def is_id_index(index: Document) -> bool:
    """Whether the index comes with its collection: the one on `_id`, or the order of a clustered collection."""
    return bool(index["name"] == "_id_" or index.get("clustered"))


def _rows(client: Client, database: str, command: dict[str, Any]) -> list[Document]:
    """All rows of a listing. The driver's own helpers cannot decode every date that a definition may hold."""
    with RawCursor(client, database, command) as cursor:
        return [rawbson.decode(row) for page in cursor.pages() for row in page.documents()]


def list_raw(client: Client, database: str, query: Document | None = None) -> list[Document]:
    """The rows of `listCollections` that fit the query. Raises the driver's errors."""
    return _rows(client, database, {"listCollections": 1, "filter": query or {}})


def list_indexes(client: Client, namespace: Namespace) -> list[Document]:
    """All finished indexes of a collection, the one on `_id` too; none of one that is gone.

    Raises the driver's errors.
    """
    command = {"listIndexes": namespace.collection, "includeBuildUUIDs": True}
    try:
        listed = _rows(client, namespace.database, command)
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return []
        raise
    # Builds in progress have a buildUUID: their event comes when they are done, if they ever are.
    return [index for index in listed if "buildUUID" not in index]


def _specification(
    client: Client, name: Namespace, rows: dict[Namespace, Document]
) -> CollectionSpec | None:
    """The collection or view of that name; None for a time-series collection that is gone but for its row."""
    row = rows[name]
    plain = CollectionSpec(name, Kind(row["type"]), None, dict(row["options"]))
    if plain.kind is Kind.VIEW:
        return plain
    stored = rows.get(plain.storage)
    if stored is None:
        return None
    indexes = list_indexes(client, plain.storage)
    return replace(
        plain,
        uuid=bytes(stored["info"]["uuid"]),
        options=(
            plain.options if plain.kind is Kind.TIME_SERIES else _id_index(plain.options, indexes)
        ),
        indexes={index["name"]: index for index in indexes if not is_id_index(index)},
    )


def list_collections(
    client: Client,
    selection: Selection | None = None,
    database: str | None = None,
    kind: Kind | None = None,
) -> Iterator[CollectionSpec]:
    """Every collection and view of the users, of one database or of all, in the order of their names.

    Only what is in the selection, and only those of a kind, where these are given: nothing else is looked at closely.
    """
    databases = client.list_database_names() if database is None else [database]
    query = None if kind is None else {"type": kind.value}
    for database in sorted(filter(is_user_database, databases)):
        rows = {Namespace(database, row["name"]): row for row in list_raw(client, database, query)}
        names = set(filter(is_user_namespace, rows))
        for name in sorted(names if selection is None else selection.of(names)):
            found = _specification(client, name, rows)
            if found is not None:
                yield found


def find_collection(client: Client, database: str, uuid: bytes) -> CollectionSpec | None:
    """The collection with that UUID under the name that it has now; None when it is gone."""
    for stored in list_raw(client, database, {"info.uuid": Binary(uuid, 4)}):
        name = Namespace(database, stored["name"])
        query = {"name": {"$in": [name.collection, name.owner.collection]}}
        rows = {Namespace(database, row["name"]): row for row in list_raw(client, database, query)}
        return _specification(client, name.owner, rows) if name.owner in rows else None
    return None


def size_of(client: Client, namespace: Namespace) -> int:
    """The bytes of a collection's documents by its statistics; zero of one that is gone, or a view by now."""
    pipeline = [{"$collStats": {"storageStats": {"scale": 1}}}]
    try:
        rows = list(client[namespace.database][namespace.collection].aggregate(pipeline))
    except OperationFailure as error:
        if error.code in (NAMESPACE_NOT_FOUND, COMMAND_NOT_SUPPORTED_ON_VIEW):
            return 0
        raise
    return sum(int(row["storageStats"]["size"]) for row in rows)
