"""Tests the errors of several instances for DDL on a source before MongoDB 6.0."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from syncsvc.engine.events import old_source
from syncsvc.engine.events.old_source import SharedOldSource
from tests.unit.engine.contexts import context_with
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")


def events(exists: bool, monkeypatch: pytest.MonkeyPatch) -> SharedOldSource:
    monkeypatch.setattr(old_source, "find_named_on_source", lambda *_: exists or None)
    context = context_with(
        registry=Mock(**{"at.return_value": None}),
        selection=Mock(**{"selects.return_value": True}),
        source_facts=SimpleNamespace(dotted_version="5.0.31"),
    )
    return SharedOldSource(context, StopToken())


def test_an_event_of_a_new_collection_tells_that_it_was_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No command `create` may have run: an insert creates a collection, too."""
    with pytest.raises(OperationError, match=r"^d\.c was created on the source\. Several"):
        events(True, monkeypatch).record_of(NAME)
    assert events(False, monkeypatch).record_of(NAME) is None


def test_a_ddl_event_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Mock(spec=DefinitionEvent, operation="rename", namespace=NAME, renamed=None)
    with pytest.raises(OperationError, match=r"^rename was run on d\.c on the source\. Several"):
        events(True, monkeypatch).apply(event)
