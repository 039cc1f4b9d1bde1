"""Under which name a collection is kept on the destination while the events of the source are behind its listing.

Usually its own. But the listing may have found a collection under a name that, at the point where the replay is, still
belongs to another one. The other one is then parked: kept under a name that no user has, until its own events drop or
rename it, or the name becomes free.
"""

from __future__ import annotations

from dataclasses import replace

from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec

_PARKED = "syncsvc.parked."


def destination_name(registry: Registry, name: Namespace, uuid: bytes) -> Namespace:
    """Where the destination keeps the collection that the source calls `name`."""
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
    """The record of a new collection, whose definition has the source's name; not saved yet.

    `amount` is what there is to copy of it.
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
    """A collection that is parked and has this name on the source."""
    return next(
        (each for each in registry if each.source_name == name != each.definition.namespace), None
    )
