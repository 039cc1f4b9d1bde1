"""Makes the views of the destination equal to those of the source, once all change events up to the commit are applied.

The events of views are applied when they are read, but some of these attempts fail: a view may refer to another view
whose definition on the destination is older or newer. Views hold no data, so they can simply be created again.
"""

from __future__ import annotations

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.run.context import RunContext
from verifier.cluster.connect import Client
from verifier.cluster.filters import Selection
from verifier.cluster.inventory import list_collections
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind, same_document
from verifier.runtime.tasks import StopToken


def reconcile_views(context: RunContext, stop: StopToken) -> None:
    """Drop the destination's views that the source does not have in the same form, and create the missing ones."""
    wanted = _views(context.source_client, context.selection, stop)
    found = _views(context.destination_client, None, stop)
    catalog = Catalog(context, stop)
    for namespace, view in found.items():
        if namespace not in wanted or not same_document(wanted[namespace].options, view.options):
            catalog.drop(namespace)
    context.views.add(wanted.values())
    for view in wanted.values():
        catalog.create_view(view)


def _views(
    client: Client, selection: Selection | None, stop: StopToken
) -> dict[Namespace, CollectionSpec]:
    def list_views() -> dict[Namespace, CollectionSpec]:
        listed = list_collections(client, selection, kind=Kind.VIEW)
        return {each.namespace: each for each in listed}

    return read(list_views, stop)
