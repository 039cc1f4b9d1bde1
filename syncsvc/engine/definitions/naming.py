"""Chooses the names of collections on the destination.

Usually, a collection has the same name as on the source. But the collections are listed at a later time than the events
that are applied first. So the listing may find a collection under a name that, at the time of these events, still
belongs to another collection. The listed collection is then parked: it gets a temporary name on the destination, until
its own events drop or rename it, or its name becomes free.
"""

from __future__ import annotations

from dataclasses import replace

from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document

_PARKED = "syncsvc.parked."


def destination_name(registry: Registry, name: Namespace, uuid: bytes) -> Namespace:
    """Return the name on the destination for the collection with the UUID `uuid`, which the source calls `name`.

    Return a temporary ("parked") name while another collection has `name` on the destination.
    """
    holder = registry.at(name)
    if holder is None or holder.uuid == uuid:
        return name
    return Namespace(name.database, _PARKED + uuid.hex())


def new_record(
    registry: Registry,
    definition: CollectionSpec,
    status: CopyStatus,
    amount: Size = Size(),
    source_key: Document | None = None,
) -> CollectionRecord:
    """Return the record of a new collection, not saved yet. `definition` has the collection's name on the source.

    In the record, the definition has the name on the destination. `amount` is the size of the data to copy, and
    `source_key` the shard key on the source.
    """
    assert definition.uuid is not None
    kept_as = destination_name(registry, definition.namespace, definition.uuid)
    return CollectionRecord(
        replace(definition, namespace=kept_as),
        status,
        definition.namespace,
        source_key=source_key or None,
        total=amount.bytes,
        total_documents=amount.documents,
    )


def parked_for(registry: Registry, name: Namespace) -> CollectionRecord | None:
    """Return a parked collection that has this name on the source; None if no such collection exists."""
    return next(
        (each for each in registry if each.source_name == name != each.definition.namespace), None
    )
