"""The list of all behaviours: changes that users may make on a source during a sync, each in its own databases."""

from tests.support.behaviours import (
    collections,
    indexes,
    keys,
    large,
    modifications,
    outputs,
    renames,
    time_series,
    transactions,
    updates,
    values,
    views,
)
from tests.support.behaviours.behaviour import Behaviour

_MODULES = (
    *(collections, renames, indexes, modifications, views, outputs, time_series),
    *(updates, keys, values, large, transactions),
)


def _of(*modules: object) -> tuple[Behaviour, ...]:
    found = (each for module in modules for each in vars(module).values())
    return tuple(each for each in found if isinstance(each, Behaviour))


ALL = _of(*_MODULES)

# Behaviours without DDL events, whose replay depends on the update format of the source's change events.
UPDATES = (*_of(updates, keys, transactions), values.update_every_type)
