"""Chooses the names of collections on the destination.

A collection normally has the same name as on the source, unless the start options rename it. But the collections are
listed after the start of the change stream. So the listing may find a collection under a name that belonged to another
collection when the first events occurred. If one of these events gives the name to the other collection, that
collection is parked: it gets a temporary name on the destination, until its own events drop or rename it, or its name
becomes free.
"""

from __future__ import annotations

from dataclasses import replace

from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import NamespaceMap
from verifier.cluster.specification import CollectionSpec, Document

_PARKED = "syncsvc.parked."


def destination_name(registry: Registry, name: Namespace, uuid: bytes) -> Namespace:
    """Return the name to use on the destination for the collection `uuid`, whose intended name there is `name`.

    The result is `name`, or a temporary name while another collection of the registry has `name`.
    """
    holder = registry.at(name)
    if holder is None or holder.uuid == uuid:
        return name
    return parked_name(name, uuid)


def parked_name(name: Namespace, uuid: bytes) -> Namespace:
    """Return the temporary name of the collection `uuid`, in the same database as `name`."""
    return Namespace(name.database, _PARKED + uuid.hex())


def new_record(
    registry: Registry,
    definition: CollectionSpec,
    source_name: Namespace,
    status: CopyStatus,
    amount: Size = Size(),
    source_key: Document | None = None,
) -> CollectionRecord:
    """Build, but do not save, the record of a collection that is new to the sync.

    `definition` is the definition that the collection must have on the destination. If another recorded collection has
    its name there, the new record gets a temporary name. `amount` is the size of the data to copy. `source_key` is the
    shard key on the source.
    """
    assert definition.uuid is not None
    kept_as = destination_name(registry, definition.namespace, definition.uuid)
    return CollectionRecord(
        replace(definition, namespace=kept_as),
        status,
        source_name,
        source_key=source_key or None,
        total=amount.bytes,
        total_documents=amount.documents,
    )


def parked_for(registry: Registry, names: NamespaceMap, name: Namespace) -> CollectionRecord | None:
    """Return the record of the collection that has a temporary name on the destination in place of `name`, if any.

    `names` maps names on the source to names on the destination.
    """
    wanted = names.to_source(name)
    return next(
        (
            each
            for each in registry
            if each.source_name == wanted and each.definition.namespace != name
        ),
        None,
    )
