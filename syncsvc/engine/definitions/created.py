"""Saves the UUIDs of the collections that the sync creates on the destination, to recognize the collections later.

A name is not enough: users may drop such a collection, and create another one with its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from syncsvc.engine.run.context import RunContext
from syncsvc.saved.created_collections import Contents, Found, contents, is_empty, temporary_prefix
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.inventory import list_raw
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.runtime.tasks import StopToken, for_each


def save_created(context: RunContext, records: Iterable[CollectionRecord], stop: StopToken) -> None:
    """Save the destination UUID of each collection in `records` that is empty and has no saved UUID yet.

    Must be called between the creation of a collection and the first write to it: a collection that already has
    documents counts as created by a user. Raises OperationError and the driver's errors.
    """
    missing: dict[str, dict[str, CollectionRecord]] = defaultdict(dict)
    for record in records:
        if record.destination_uuid is None:
            missing[record.namespace.database][record.namespace.collection] = record
    for database, by_name in missing.items():
        uuids = _uuids(context, database, list(by_name), stop)
        empty = _empty(context, [Namespace(database, name) for name in uuids], stop)
        context.registry.change_all(
            (by_name[each.collection], {"destination_uuid": uuids[each.collection]})
            for each in empty
        )


def created(
    context: RunContext, views: Mapping[Namespace, list[Document]], stop: StopToken
) -> tuple[Found, ...]:
    """Return the collections and views on the destination that the sync has created.

    `views` holds the saved definitions of the views that the sync has created, by name. Raises the driver's errors.
    """
    return destination_contents(context, views, stop).created


def destination_contents(
    context: RunContext, views: Mapping[Namespace, list[Document]], stop: StopToken
) -> Contents:
    """Return the collections and views on the destination: those that the sync has created, and all others.

    `views` holds the saved definitions of the views that the sync has created, by name. Raises the driver's errors.
    """
    temporary = temporary_prefix(context.run.record)
    return contents(context.destination_client, context.registry, views, stop, temporary)


def created_uuid(context: RunContext, namespace: Namespace, stop: StopToken) -> bytes | None:
    """Return the UUID of the collection that has this name on the destination now; None if no collection has it.

    Also return None for a time-series collection whose documents are in a separate bucket collection.
    """
    return _uuids(context, namespace.database, [namespace.collection], stop).get(
        namespace.collection
    )


def _empty(context: RunContext, names: list[Namespace], stop: StopToken) -> list[Namespace]:
    """Return the names of the empty collections among `names` on the destination.

    Several collections are checked in parallel: there may be thousands, and the network may be slow.
    """
    empty = []

    def check(name: Namespace, stop: StopToken) -> None:
        if read(lambda: is_empty(context.destination_client, name), stop):
            empty.append(name)

    for_each("empty", names, check, context.threads.writers, stop)
    return empty


def _uuids(
    context: RunContext, database: str, names: list[str], stop: StopToken
) -> dict[str, bytes]:
    """Return the UUIDs of the destination's collections with these names, by name."""
    query = {"name": {"$in": names}}
    rows = read(lambda: list_raw(context.destination_client, database, query), stop)
    return {row["name"]: bytes(row["info"]["uuid"]) for row in rows if "uuid" in row["info"]}
