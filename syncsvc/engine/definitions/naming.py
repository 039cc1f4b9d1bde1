"""Chooses the name of a collection on the destination while the replayed events are behind the listing of the source.

Usually it is the same name. But the listing may have found a collection under a name that still belongs to another
collection at the present point of the replay. Then the listed collection is parked: kept under a name that no user has,
until its own events drop or rename it, or the name becomes free.
"""

from __future__ import annotations

from dataclasses import replace

from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec

_PARKED = "syncsvc.parked."


def destination_name(registry: Registry, name: Namespace, uuid: bytes) -> Namespace:
    """Return the name on the destination for the collection `uuid`, which the source calls `name`.

    While another collection has `name` on the destination, that is a temporary ("parked") name.
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
) -> CollectionRecord:
    """Return the record of a new collection, not saved yet. `definition` has the collection's name on the source.

    In the record, the definition has the name on the destination. `amount` is the size of the data to copy.
    """
    assert definition.uuid is not None
    kept_as = destination_name(registry, definition.namespace, definition.uuid)
    return CollectionRecord(
        replace(definition, namespace=kept_as),
        status,
        definition.namespace,
        total=amount.bytes,
        total_documents=amount.documents,
    )


def parked_for(registry: Registry, name: Namespace) -> CollectionRecord | None:
    """Return a parked collection that has this name on the source; None if no such collection exists."""
    return next(
        (each for each in registry if each.source_name == name != each.definition.namespace), None
    )
