"""Finds the collections and views that the sync has created, by the saved UUIDs and definitions. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from syncsvc.errors import DESTINATION_NOT_EMPTY
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import RunRecord
from verifier.cluster.connect import Client
from verifier.cluster.inventory import list_raw, list_uuids
from verifier.cluster.namespace import Namespace, is_user_database, is_user_namespace
from verifier.cluster.namespace_map import NamespaceMap
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.reading import read
from verifier.cluster.specification import Document, Kind, same_document, without
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# The maximum number of collections that an error names.
_SHOWN = 5


class Found(NamedTuple):
    """A collection or view on the destination.

    `uuid` is None for a view. For a time-series collection, `uuid` is the UUID of its buckets collection.
    """

    namespace: Namespace
    kind: Kind
    uuid: bytes | None
    options: Document


@dataclass(frozen=True)
class Contents:
    """The collections and views of the destination: those that the sync has created, and all others."""

    created: tuple[Found, ...]
    others: tuple[Found, ...]
    # The names of the users and roles that the sync has created.
    principals: tuple[str, ...] = ()


def contents(
    client: Client,
    records: Iterable[CollectionRecord],
    views: Mapping[Namespace, list[Document]],
    stop: StopToken,
    temporary: str | None,
) -> Contents:
    """Return the collections and views on the destination, divided into those that the sync has created and all others.

    `records` is the registry, and `views` holds the saved definitions of the views that the sync has created, by name.
    `temporary` is the prefix of the sync's temporary names, or None (see `temporary_prefix`). System collections are
    left out, and the field `principals` of the result is empty. Raises the driver's errors.
    """
    is_created = _creations(client, list(records), views, stop, temporary)
    found: dict[bool, list[Found]] = {True: [], False: []}
    for each in read(lambda: list(_listed(client)), stop):
        found[is_created(each)].append(each)
    return Contents(tuple(found[True]), tuple(found[False]))


def refuse_foreign(
    client: Client,
    records: Iterable[CollectionRecord],
    views: Mapping[Namespace, list[Document]],
    stop: StopToken,
    temporary: str | None,
) -> None:
    """Raise OperationError DestinationNotEmpty if users have created or filled a collection on the destination.

    Call this before the copy, while the collections that the sync has created must still be empty. If the destination
    may hold other data (`temporary` is not None), only the collections of the sync are checked.

    `records` is the registry, and `views` holds the saved definitions of the views that the sync has created, by name.
    `temporary` is the prefix of the sync's temporary names, or None (see `temporary_prefix`). Also raises the driver's
    errors.
    """
    found = contents(client, records, views, stop, temporary)
    others = found.others if temporary is None else ()

    def is_filled(each: Found) -> bool:
        return not read(lambda: is_empty(client, each.namespace), stop)

    foreign = [*_without_views(others), *filter(is_filled, _without_views(found.created))]
    if foreign:
        names = ", ".join(str(each.namespace) for each in foreign[:_SHOWN])
        raise OperationError(
            DESTINATION_NOT_EMPTY,
            "Since the start of the sync, users have created or filled collections on the destination, such as "
            f"{names}.",
        )


def _without_views(found: Iterable[Found]) -> Iterator[Found]:
    return (each for each in found if each.kind is not Kind.VIEW)


def _creations(
    client: Client,
    records: list[CollectionRecord],
    views: Mapping[Namespace, list[Document]],
    stop: StopToken,
    temporary: str | None,
) -> Callable[[Found], bool]:
    """Return a function that returns whether the sync has created the given collection or view of the destination.

    A view counts as created by the sync if `views` contains the same definition under its name.

    Collections are compared by UUID, because users may drop a collection and create another one with its name. If a
    process was killed before it saved the UUID of a new collection, it wrote nothing to that collection. So the
    collection with the name of a record without a UUID counts as created by the sync if the collection is empty.
    Registries of older versions contain no UUIDs: with these, a collection also counts if the sync has copied documents
    into it.

    If the destination may hold other data, an empty collection proves nothing. Then, the sync creates each collection
    under a name that begins with `temporary`, saves the UUID, and then renames the collection. So only a collection
    with a saved UUID or such a name counts as created by the sync.
    """
    uuids = {each.destination_uuid for each in records if each.destination_uuid}
    unsaved = {each.definition.namespace: each for each in records if not each.destination_uuid}

    def is_created(found: Found) -> bool:
        if found.kind is Kind.VIEW:
            return any(
                same_document(each, found.options) for each in views.get(found.namespace, ())
            )
        if temporary is not None:
            return found.uuid in uuids or found.namespace.collection.startswith(temporary)
        if found.namespace in unsaved and found.uuid not in uuids:
            copied = unsaved[found.namespace].documents > 0
            return copied or read(lambda: is_empty(client, found.namespace), stop)
        return found.uuid in uuids

    return is_created


def temporary_prefix(record: RunRecord) -> str | None:
    """Return the prefix of the temporary names that this sync gives to new collections. No other sync uses it.

    Return None if the option `preExistingDestinationData` is false: then, no temporary names are needed.
    """
    return (
        f"syncsvc.new.{record.fence.hex}." if record.options.pre_existing_destination_data else None
    )


def replaced(client: Client, records: Iterable[CollectionRecord]) -> list[CollectionRecord]:
    """Return the records whose collection users have replaced on the destination with another one of the same name.

    Records without a saved UUID of the destination are left out. Raises the driver's errors.
    """
    uuids = list_uuids(client)
    return [each for each in records if is_replaced(each, uuids)]


def is_replaced(record: CollectionRecord, uuids: Mapping[Namespace, bytes]) -> bool:
    """Return whether another collection has the name of a record's collection on the destination.

    `uuids` maps the names on the destination to UUIDs. Return False if the record has no saved UUID.
    """
    found = uuids.get(record.definition.namespace)
    return bool(found and record.destination_uuid and found != record.destination_uuid)


def under_current_names(
    records: Iterable[CollectionRecord], uuids: Mapping[Namespace, bytes]
) -> Iterator[CollectionRecord]:
    """Yield `records` with the current names of their collections on the destination, which users may have renamed.

    `uuids` maps the current names on the destination to UUIDs. If no collection has the UUID of a record, but a
    collection that does not belong to any record has the name, the record is yielded unchanged: `$out` replaces a
    collection, and keeps its indexes. All other records are left out, because their collections were dropped.
    """
    records = list(records)
    names = {uuid: name for name, uuid in uuids.items()}
    own = {each.destination_uuid for each in records}
    for record in records:
        definition, uuid = record.definition, record.destination_uuid
        if uuid is not None and uuid in names:
            yield replace(record, definition=replace(definition, namespace=names[uuid]))
        elif definition.namespace in uuids and uuids[definition.namespace] not in own:
            yield record


def to_convert(
    records: Iterable[CollectionRecord], uuids: Mapping[Namespace, bytes]
) -> Iterator[CollectionRecord]:
    """Yield `records` like `under_current_names`, to convert and build the indexes of their collections.

    Records of replaced time series are left out: users may have created the new time series, and a TTL index would
    delete its measurements.
    """
    for each in under_current_names(records, uuids):
        if each.definition.kind is not Kind.TIME_SERIES or not is_replaced(each, uuids):
            yield each


def to_expire(
    records: Iterable[CollectionRecord], uuids: Mapping[Namespace, bytes]
) -> Iterator[CollectionRecord]:
    """Yield `records` like `under_current_names`, to let the documents of their collections expire.

    Records of replaced collections are yielded without the collection option for expiration: users may have created a
    collection in which no document expires. Their indexes stay, because `$out` and `movePrimary` keep the indexes of a
    collection; `standin.expirations` leaves out indexes that users have created.
    """
    for each in under_current_names(records, uuids):
        if is_replaced(each, uuids):
            options = without(each.definition.options, {"expireAfterSeconds"})
            each = replace(each, definition=replace(each.definition, options=options))
        yield each


def mismatch_names(records: Iterable[CollectionRecord], names: NamespaceMap) -> set[Namespace]:
    """Return the names under which the verification may report mismatches of the collections of `records`.

    Each collection has up to three names: its name on the source, the name of its buckets there (if it is a time-series
    collection), and the source name to which `names` maps its current name on the destination.
    """
    return {
        name
        for each in records
        for name in (
            names.to_source(each.definition.namespace),
            each.source_name,
            each.source_storage,
        )
    }


def _listed(client: Client) -> Iterator[Found]:
    for database in sorted(filter(is_user_database, client.list_database_names())):
        rows = {Namespace(database, row["name"]): row for row in list_raw(client, database)}
        for name in sorted(filter(is_user_namespace, rows)):
            kind = Kind(rows[name]["type"])
            stored = name.buckets if kind is Kind.TIME_SERIES else name
            uuid = rows.get(stored, rows[name])["info"].get("uuid")
            options = dict(rows[name]["options"])
            yield Found(name, kind, None if uuid is None else bytes(uuid), options)


def is_empty(client: Client, namespace: Namespace) -> bool:
    """Return whether a collection has no documents, or does not exist. Raises the driver's errors."""
    command = {"find": namespace.collection, "limit": 1, "singleBatch": True}
    with RawCursor(client, namespace.database, command) as cursor:
        return not any(any(True for _ in page.documents()) for page in cursor.pages())
