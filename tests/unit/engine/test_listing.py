"""What cannot be synced is refused before anything is touched, all of it at once."""

from __future__ import annotations

import pytest

from syncsvc.engine.listing import refuse_time_series
from syncsvc.errors import UNSUPPORTED_COLLECTION
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.errors import OperationError


def spec(name: str, kind: Kind) -> CollectionSpec:
    return CollectionSpec(Namespace("d", name), kind)


def test_collections_and_views_are_fine() -> None:
    refuse_time_series([spec("c", Kind.COLLECTION), spec("v", Kind.VIEW)])


def test_all_time_series_are_named() -> None:
    listed = [spec("a", Kind.TIME_SERIES), spec("b", Kind.VIEW), spec("c", Kind.TIME_SERIES)]
    with pytest.raises(OperationError, match="d.a, d.c") as raised:
        refuse_time_series(listed)
    assert raised.value.kind is UNSUPPORTED_COLLECTION
