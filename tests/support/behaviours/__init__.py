"""What a source may do while it is synced, each a `Behaviour` in databases of its own."""

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

# Those that change no definition, and whose replay depends on how the source tells of updates.
UPDATES = (*_of(updates, keys, transactions), values.update_every_type)
