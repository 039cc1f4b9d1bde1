"""Changes in the definitions of an old source are described in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.engine.events.definition_watch import change_of, changes, remedy_of
from syncsvc.indexing import Target
from syncsvc.options import StartOptions
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind

TARGET = Target(StartOptions("a", "b"), sharded=False)
ITEMS = Namespace("d", "items")
OLD = {"v": 2, "key": {"a": 1}, "name": "old"}
KNOWN = CollectionSpec(ITEMS, Kind.COLLECTION, b"1" * 16, {"capped": True}, {"old": OLD})


@pytest.mark.parametrize(
    ("now", "told", "undone"),
    [
        (KNOWN, [], []),
        (None, [], []),
        (
            replace(KNOWN, indexes={}),
            ["index old of d.items was dropped"],
            ["index old of d.items: create it again as it was"],
        ),
        (
            replace(KNOWN, indexes={"old": {**OLD, "sparse": True}, "new": OLD}),
            ["index new of d.items was created", "index old of d.items was changed"],
            ["index new of d.items: drop it", "index old of d.items: change it back"],
        ),
        (
            replace(KNOWN, options={"validator": {"n": 1}}),
            ["option capped of d.items was unset", "option validator of d.items was set"],
            [
                "option capped of d.items: set it again with collMod",
                "option validator of d.items: set it back with collMod",
            ],
        ),
        (replace(KNOWN, options={"capped": True, "validationLevel": "strict"}), [], []),
        (
            replace(KNOWN, namespace=Namespace("d", "new")),
            ["d.new was created"],
            ["d.new: drop it"],
        ),
        (CollectionSpec(Namespace("d", "view"), Kind.VIEW, None, {"viewOn": "items"}), [], []),
    ],
)
def test_changes_are_named_with_their_remedies(
    now: CollectionSpec | None, told: list[str], undone: list[str]
) -> None:
    record = CollectionRecord(KNOWN, CopyStatus.DONE, ITEMS)
    listed: list[Any] = [] if now is None else [now]
    found = changes([record], listed, TARGET)
    assert [change_of(each) for each in found] == told
    assert [remedy_of(each) for each in found] == undone
