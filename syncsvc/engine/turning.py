"""Turns a sync round: the cluster that was its source is made a destination again, which refuses and deletes nothing.

Its collections are those of the registry already, under the same names; only their definitions are real. They are
weakened where they are, so that nothing is copied and no index is built anew.
"""

from __future__ import annotations

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.observe import Point
from syncsvc.engine.run_context import RunContext
from verifier.cluster.inventory import list_collections
from verifier.cluster.reading import read
from verifier.cluster.specification import Kind
from verifier.runtime.tasks import StopToken


def weaken_definitions(context: RunContext, stop: StopToken) -> None:
    """Make all collections of the destination stand-ins. May be repeated, before any event is applied."""
    catalog = Catalog(context, stop)
    found = read(lambda: list(list_collections(context.destination_client)), stop)
    for definition in found:
        stop.check()
        record = context.registry.at(definition.namespace)
        if record is None or definition.kind is Kind.VIEW:
            continue
        # What is there now, not what is saved: an index that users changed meanwhile needs other commands.
        catalog.weaken(definition)
        catalog.reconcile_indexes(record.definition)
        context.observe(Point.COLLECTION_WEAKENED, str(definition.namespace))
