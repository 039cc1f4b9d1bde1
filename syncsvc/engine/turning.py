"""Turns a sync round: the cluster that was its source is made a destination again, which refuses and deletes nothing.

Its collections are those of the registry already, under the same names; only their definitions are real. They are
weakened where they are, so that nothing is copied and no index is built anew.
"""

from __future__ import annotations

from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from verifier.cluster.inventory import list_collections
from verifier.cluster.reading import read
from verifier.cluster.specification import Kind
from verifier.runtime.tasks import StopToken


def weaken_definitions(parts: Parts, stop: StopToken) -> None:
    """Make all collections of the destination stand-ins. May be repeated, before any event is applied."""
    catalog = Catalog(parts, stop)
    found = read(lambda: list(list_collections(parts.client)), stop)
    for definition in found:
        stop.check()
        record = parts.registry.at(definition.namespace)
        if record is None or definition.kind is Kind.VIEW:
            continue
        # What is there now, not what is saved: an index that users changed meanwhile needs other commands.
        catalog.weaken(definition)
        catalog.reconcile_indexes(record.definition)
        parts.observe(Point.COLLECTION_WEAKENED, str(definition.namespace))
