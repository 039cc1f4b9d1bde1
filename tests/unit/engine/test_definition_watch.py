"""Tests which changes are found by comparing the definitions of a source before MongoDB 6.0 with the saved ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.engine.events.definition_watch import applicable, change_of, changes, remedy_of
from syncsvc.options import StartOptions
from syncsvc.rules.indexing import Target
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import NamespaceMap
from verifier.cluster.specification import CollectionSpec, Kind

TARGET = Target(StartOptions("a", "b"), sharded=False, names=NamespaceMap())
ITEMS = Namespace("d", "items")
NEW = Namespace("d", "new")
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
            ["index old of d.items must be created again with the old definition"],
        ),
        (
            replace(KNOWN, indexes={"old": {**OLD, "sparse": True}, "new": OLD}),
            ["index new of d.items was created", "index old of d.items was changed"],
            ["index new of d.items must be dropped", "index old of d.items must be changed back"],
        ),
        (
            replace(KNOWN, options={"validator": {"n": 1}}),
            ["option capped of d.items was unset", "option validator of d.items was set"],
            [
                "option capped of d.items must be set again with collMod",
                "option validator of d.items must be set back with collMod",
            ],
        ),
        (replace(KNOWN, options={"capped": True, "validationLevel": "strict"}), [], []),
        (
            replace(KNOWN, namespace=Namespace("d", "new")),
            ["d.new was created"],
            ["d.new must be dropped"],
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


@pytest.mark.parametrize("known", [Namespace("d", "temporary"), Namespace("renamed", "items")])
def test_changes_have_the_names_on_the_source(known: Namespace) -> None:
    """A collection has another name on the destination while its own is taken there, and with namespaceRemap."""
    target = replace(TARGET, names=NamespaceMap({Namespace("d", ""): Namespace("renamed", "")}))
    record = CollectionRecord(replace(KNOWN, namespace=known), CopyStatus.DONE, ITEMS)
    assert changes([record], [KNOWN], target) == []
    (found,) = changes([record], [replace(KNOWN, indexes={})], target)
    assert change_of(found) == "index old of d.items was dropped"


@pytest.mark.parametrize(
    ("now", "status", "applied"),
    [
        (KNOWN, CopyStatus.DONE, {}),
        (KNOWN, CopyStatus.COPYING, {ITEMS: b"1" * 16}),
        (replace(KNOWN, uuid=b"2" * 16), CopyStatus.DONE, {ITEMS: b"2" * 16}),
        (replace(KNOWN, indexes={}), CopyStatus.DONE, {ITEMS: b"1" * 16}),
        (
            replace(KNOWN, options={"capped": True, "validationLevel": "strict"}),
            CopyStatus.DONE,
            {ITEMS: b"1" * 16},
        ),
        (replace(KNOWN, namespace=NEW), CopyStatus.DONE, {NEW: b"1" * 16}),
        (replace(KNOWN, namespace=NEW, kind=Kind.TIME_SERIES), CopyStatus.DONE, {}),
        (CollectionSpec(NEW, Kind.VIEW, None, {"viewOn": "items"}), CopyStatus.DONE, {}),
    ],
)
def test_collections_that_differ_are_applied(
    now: CollectionSpec, status: CopyStatus, applied: dict[Namespace, bytes]
) -> None:
    records = [CollectionRecord(KNOWN, status, ITEMS)]
    assert applicable(records, [now], TARGET) == applied
