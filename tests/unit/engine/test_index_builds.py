"""Tests how an attempt to build withheld indexes ends if a cluster is unreachable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syncsvc.engine.definitions import index_builds
from syncsvc.errors import CLUSTER_UNREACHABLE
from tests.unit.engine.contexts import context_with
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


def test_an_outage_does_not_drop_indexes_that_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the build fail because a cluster is unreachable: the indexes that were built before must not be dropped."""
    built = []

    class Unreachable:
        def reconcile_indexes(self, definition: str) -> None:
            built.append(definition)
            raise OperationError(CLUSTER_UNREACHABLE, "test")

    def catalog_of(*arguments: Any) -> Unreachable:
        return Unreachable()

    monkeypatch.setattr(index_builds, "catalog_of", catalog_of)
    record = SimpleNamespace(withheld=True, definition="all", current_definition="none")
    with pytest.raises(OperationError, match="test"):
        index_builds.try_withheld(context_with(registry=[record]), StopToken())
    assert built == ["all"]
