"""Makes the views of the destination equal to the selected ones of the source, during the commit and in a repair.

The events of views are applied when they are read, but the destination may refuse to create a view then, because it
refers to another view whose definition there is older or newer. A source before 6.0 has no events of new or changed
views. Views hold no data, so they can simply be dropped and created again.
"""

from __future__ import annotations

from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.run.context import RunContext
from syncsvc.rules.indexing import destined, is_renamable
from verifier.cluster.connect import Client
from verifier.cluster.filters import Selection
from verifier.cluster.inventory import list_collections
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind, same_document
from verifier.runtime.tasks import StopToken


def reconcile_views(context: RunContext, stop: StopToken) -> None:
    """Drop the destination's views that are not equal to a selected view of the source, and create the missing ones.

    If the start options allow other data on the destination, views that the sync has not created are kept. Raises
    OperationError DefinitionNotApplicable and DestinationNamespaceExists, the driver's errors, and `Cancelled`.
    """
    on_source = _views(context.source_client, context.selection, stop).values()
    # Leave out a view that cannot have its name on the destination: its change event fails the sync, unless the view no
    # longer exists when the event is applied.
    expected = [
        destined(each, context.target) for each in on_source if is_renamable(each, context.target)
    ]
    wanted = {each.namespace: each for each in expected}
    found = _views(context.destination_client, None, stop)
    catalog = catalog_of(context, stop)
    own = catalog.own_views({name: each.options for name, each in found.items()})
    for namespace, options in own.items():
        if namespace not in wanted or not same_document(wanted[namespace].options, options):
            catalog.drop_view(namespace)
    catalog.create_views(wanted.values())


def _views(
    client: Client, selection: Selection | None, stop: StopToken
) -> dict[Namespace, CollectionSpec]:
    def list_views() -> dict[Namespace, CollectionSpec]:
        listed = list_collections(client, selection, kind=Kind.VIEW)
        return {each.namespace: each for each in listed}

    return read(list_views, stop)
