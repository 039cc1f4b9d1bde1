"""What cannot be synced is refused before anything is touched, all of it at once."""

from __future__ import annotations

import pytest

from syncsvc.engine.listing import refuse_unsupported
from syncsvc.errors import UNSUPPORTED_COLLECTION
from tests.unit.syncsvc.test_rules import facts
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.errors import OperationError


def spec(name: str, kind: Kind) -> CollectionSpec:
    return CollectionSpec(Namespace("d", name), kind)


LISTED = [spec("a", Kind.TIME_SERIES), spec("b", Kind.VIEW), spec("c", Kind.TIME_SERIES)]


def test_of_a_new_source_all_kinds_are_fine() -> None:
    refuse_unsupported([*LISTED, spec("d", Kind.COLLECTION)], facts(version=(6, 0, 0)))


def test_of_an_old_source_all_time_series_are_named() -> None:
    with pytest.raises(OperationError, match="d.a, d.c") as raised:
        refuse_unsupported(LISTED, facts(version=(5, 0, 30)))
    assert raised.value.kind is UNSUPPORTED_COLLECTION
