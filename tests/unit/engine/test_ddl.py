"""Tests which DDL events can concern a sync, depending on its filter and on the synced collections."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.engine.events.ddl import concerns
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace

SYNCED, OTHER = b"s" * 16, b"o" * 16
RANDOM = "5c1fbf0e-9b39-4b5a-8a6a-0c6f7d0e2b11"
IN, OUT = Namespace("in", "c"), Namespace("out", "c")


def event(
    operation: str,
    namespace: Namespace = OUT,
    collection: bytes | None = OTHER,
    renamed: Namespace | None = None,
    **description: Any,
) -> DefinitionEvent:
    return DefinitionEvent(operation, namespace, collection, description, renamed, {})


@pytest.mark.parametrize(
    "given, expected",
    [
        (event("create"), False),
        (event("create", IN), True),
        (event("create", IN.buckets), True),
        (event("create", OUT.buckets), False),
        (event("create", collection=None, viewOn="c"), False),
        (event("shardCollection", Namespace("in", f"resharding.{RANDOM}").buckets), False),
        (event("shardCollection", Namespace("in", "resharding.mine").buckets), True),
        (event("createIndexes", indexes=[]), False),
        (event("startIndexBuild", IN), False),
        (event("create", Namespace("in", "system.js")), False),
        # Listed under a newer name.
        (event("drop", collection=SYNCED), True),
        (event("drop"), False),
        (event("drop", collection=None), False),
        (event("dropDatabase", Namespace("out", ""), None), True),
        (event("rename", renamed=OUT), False),
        (event("rename", renamed=IN), True),
        (event("rename", IN, renamed=OUT), True),
        (event("rename", renamed=OUT, dropTarget=SYNCED), True),
        (event("rename", renamed=OUT, dropTarget=OTHER), False),
        (event("unknown"), False),
        (event("unknown", dropTarget="text"), False),
        (event("unknown", IN), True),
        (event("unknown", Namespace("", ""), None), True),
        (event("invalidate", Namespace("", ""), None), False),
    ],
)
def test_an_event_concerns_the_sync(given: DefinitionEvent, expected: bool) -> None:
    found = concerns(
        given,
        lambda uuid: uuid == SYNCED,
        lambda names: any(each.database == "in" for each in names),
    )
    assert found is expected
