"""Decides how a difference that the verification has found is repaired, and which options collMod can change.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from enum import Enum
from typing import Any

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    Mismatch,
)


class Action(Enum):
    """The action of a repair for one difference. The API shows the values as texts."""

    WRITE = "write the document again as it is on the source"
    DELETE = "delete the document"
    INDEX = "build or drop the index"
    CHANGE = "change the option"
    CREATE = (
        "create the missing collection, view or shard key; the documents of a collection are compared and written "
        "afterwards"
    )
    DROP_VIEW = "drop the view"
    NONE = "none: remove the difference on the destination yourself, then repair or commit again"
    COUNT = "none by itself: the number of documents changes when the documents that differ are repaired"
    KEEP = (
        "none: users created this collection again on the destination; save its data if needed, drop the collection, "
        "then repair again"
    )

    @property
    def repairs(self) -> bool:
        """Return whether this action repairs the difference; False for NONE, COUNT and KEEP."""
        return self not in (Action.NONE, Action.COUNT, Action.KEEP)


# The options that collMod can change, each with the value to set if the definition does not state the option.
_CHANGEABLE: dict[str, Any] = {
    "validator": {},
    "validationLevel": "strict",
    "validationAction": "error",
    "changeStreamPreAndPostImages": {"enabled": False},
    "expireAfterSeconds": "off",
}
# The options with another name in collMod: for each, this name, and the value to set if the definition does not state
# the option.
_CAPPED: dict[str, tuple[str, Any]] = {"size": ("cappedSize", None), "max": ("cappedMax", -1)}
_OF_VIEWS = {"viewOn", "pipeline"}


def action_of(mismatch: Mismatch, replaced: Container[Namespace]) -> Action:
    """Return the action that a repair takes for a difference; some actions do not repair it (see `Action.repairs`).

    `replaced` are the collections that users have dropped on the destination and created again: they are not repaired,
    because they may hold data that users need.
    """
    if mismatch.namespace in replaced:
        return Action.KEEP
    if isinstance(mismatch, DocumentMismatch):
        return Action.DELETE if mismatch.difference is Difference.EXTRA else Action.WRITE
    match mismatch.aspect:
        case Aspect.EXISTENCE:
            return _of_existence(mismatch)
        case Aspect.INDEX:
            return Action.INDEX
        case Aspect.OPTION:
            changeable = {*_CHANGEABLE, *_CAPPED, *_OF_VIEWS}
            return Action.CHANGE if mismatch.component in changeable else Action.NONE
        case Aspect.KIND:
            # A view holds no data, so it can be replaced.
            is_view = mismatch.detail.endswith("a view on the destination")
            return Action.CREATE if is_view else Action.NONE
        case Aspect.SHARD_KEY:
            missing = mismatch.difference is Difference.MISSING
            return Action.CREATE if missing else Action.NONE
        case Aspect.COUNT:
            return Action.COUNT


def _of_existence(mismatch: DefinitionMismatch) -> Action:
    if mismatch.difference is Difference.MISSING:
        return Action.CREATE
    # A collection that the sync did not create may hold data that users need.
    return Action.DROP_VIEW if mismatch.detail == "a view" else Action.NONE


def unchangeable(definition: CollectionSpec, names: Collection[str]) -> list[str]:
    """Return the options among `names` that collMod cannot change in a collection with this definition."""
    changeable = {*_CHANGEABLE, *(_CAPPED if definition.capped else ())}
    return [name for name in names if name not in changeable]


def option_change(definition: CollectionSpec, names: Collection[str]) -> Document:
    """Return the fields of a collMod that sets the options `names` to their values in `definition`.

    Options that collMod cannot change are ignored. An option that `definition` does not state gets its default.
    """
    options = definition.options
    change = {name: options.get(name, _CHANGEABLE[name]) for name in names if name in _CHANGEABLE}
    for name in names:
        if name in _CAPPED and definition.capped:
            field, default = _CAPPED[name]
            change[field] = options.get(name, default)
    return change
