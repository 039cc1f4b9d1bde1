"""Tests how each kind of difference is repaired."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.rules.repairing import Action, action_of, option_change, unchangeable
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch

NAME = Namespace("d", "c")
MISSING, EXTRA, CONTENT = Difference.MISSING, Difference.EXTRA, Difference.CONTENT
VIEW_INSTEAD = "a collection on the source, a view on the destination"
COLLECTION_INSTEAD = "a view on the source, a collection on the destination"


@pytest.mark.parametrize(
    "difference, action",
    [(MISSING, Action.WRITE), (CONTENT, Action.WRITE), (EXTRA, Action.DELETE)],
)
def test_a_document(difference: Difference, action: Action) -> None:
    assert action_of(DocumentMismatch(NAME, b"", difference), ()) is action


@pytest.mark.parametrize(
    "difference, aspect, component, detail, action",
    [
        (MISSING, Aspect.EXISTENCE, "", "a collection", Action.CREATE),
        (MISSING, Aspect.EXISTENCE, "", "a view", Action.CREATE),
        (EXTRA, Aspect.EXISTENCE, "", "a view", Action.DROP_VIEW),
        (EXTRA, Aspect.EXISTENCE, "", "a collection", Action.NONE),
        (EXTRA, Aspect.EXISTENCE, "", "a time-series collection", Action.NONE),
        (CONTENT, Aspect.KIND, "", VIEW_INSTEAD, Action.CREATE),
        (CONTENT, Aspect.KIND, "", COLLECTION_INSTEAD, Action.NONE),
        (MISSING, Aspect.INDEX, "a_1", "", Action.INDEX),
        (EXTRA, Aspect.INDEX, "a_1", "", Action.INDEX),
        (CONTENT, Aspect.OPTION, "validator", "", Action.CHANGE),
        (CONTENT, Aspect.OPTION, "pipeline", "", Action.CHANGE),
        (MISSING, Aspect.OPTION, "size", "", Action.CHANGE),
        (CONTENT, Aspect.OPTION, "collation", "", Action.NONE),
        (MISSING, Aspect.SHARD_KEY, "", "", Action.CREATE),
        (CONTENT, Aspect.SHARD_KEY, "", "", Action.NONE),
        (CONTENT, Aspect.COUNT, "", "", Action.COUNT),
    ],
)
def test_a_definition(
    difference: Difference, aspect: Aspect, component: str, detail: str, action: Action
) -> None:
    mismatch = DefinitionMismatch(NAME, difference, aspect, component, detail)
    assert action_of(mismatch, ()) is action


def test_a_collection_that_users_created_again_is_kept() -> None:
    document = DocumentMismatch(NAME, b"", EXTRA)
    index = DefinitionMismatch(NAME, MISSING, Aspect.INDEX, "a_1")
    assert [action_of(each, {NAME}) for each in (document, index)] == [Action.KEEP] * 2
    assert action_of(document, {Namespace("d", "other")}) is Action.DELETE
    assert [each for each in Action if not each.repairs] == [Action.NONE, Action.COUNT, Action.KEEP]


@pytest.mark.parametrize(
    "options, names, change",
    [
        ({}, [], {}),
        ({}, ["validator", "validationLevel"], {"validator": {}, "validationLevel": "strict"}),
        ({"validator": {"a": 1}}, ["validator"], {"validator": {"a": 1}}),
        (
            {},
            ["changeStreamPreAndPostImages"],
            {"changeStreamPreAndPostImages": {"enabled": False}},
        ),
        ({}, ["expireAfterSeconds"], {"expireAfterSeconds": "off"}),
        ({"capped": True, "size": 9}, ["size", "max"], {"cappedSize": 9, "cappedMax": -1}),
        ({}, ["size", "collation", "viewOn"], {}),
    ],
)
def test_the_change_of_options(
    options: dict[str, Any], names: list[str], change: dict[str, Any]
) -> None:
    assert option_change(CollectionSpec(NAME, Kind.COLLECTION, None, options), names) == change


@pytest.mark.parametrize(
    "options, names, left",
    [
        ({}, ["validator", "expireAfterSeconds"], []),
        ({"capped": True}, ["size", "max"], []),
        ({}, ["size", "validator", "recordPreImages"], ["size", "recordPreImages"]),
    ],
)
def test_options_that_cannot_be_changed(
    options: dict[str, Any], names: list[str], left: list[str]
) -> None:
    assert unchangeable(CollectionSpec(NAME, Kind.COLLECTION, None, options), names) == left
