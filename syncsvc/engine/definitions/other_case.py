"""Finds a database on the destination that prevents creating another one, because their names differ only in case."""

from __future__ import annotations

from collections.abc import Iterator

from syncsvc.engine.run.context import RunContext
from syncsvc.errors import DEFINITION_NOT_APPLICABLE, NAMESPACE_COLLISION
from syncsvc.rules.taken_names import Taken, taken_violations
from verifier.cluster.inventory import find_in_other_case
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.runtime.errors import Violation
from verifier.runtime.tasks import StopToken


def case_violations(context: RunContext, name: Namespace, stop: StopToken) -> Iterator[Violation]:
    """Yield a violation if the destination has a database whose name differs only in case from the needed one.

    The needed database is that of `name`, a collection or view of the source, after renames. An empty database is not
    detected here: the destination then refuses the command that creates the collection or view.
    """
    needed = context.names.to_destination(name).database
    if any(each.definition.namespace.database == needed for each in context.registry):
        # The destination has a database with exactly this name.
        return
    present = read(lambda: find_in_other_case(context.destination_client, needed), stop)
    if present is None:
        return
    shared = context.run.record.options.pre_existing_destination_data
    if shared and present not in _own_databases(context):
        yield from taken_violations(Taken(databases=((needed, present),)))
        return
    yield NAMESPACE_COLLISION if context.names else DEFINITION_NOT_APPLICABLE, (
        f"{name} of the source needs the database {needed} on the destination, but the destination has the database "
        f"{present}, whose name differs only in case."
    )


def _own_databases(context: RunContext) -> set[str]:
    """Return the databases of the destination that hold collections or views of this sync."""
    collections = {each.definition.namespace.database for each in context.registry}
    return collections | {each.database for each in context.views.load()}
