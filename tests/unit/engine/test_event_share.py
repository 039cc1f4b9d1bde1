"""Every event belongs to exactly one instance, and all instances agree on which one."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.engine.events.event_share import Share, share_of, stable_hash
from tests.unit import documents
from verifier.cluster.keys import canonical, id_element

UUID = bytes(range(16))


def group(identity: Any) -> Any:
    key = bson.encode({"_id": identity})
    return canonical(key, id_element(key))


@given(documents.values, st.integers(1, 8))
def test_every_document_belongs_to_one_share(value: tuple[int, bytes], parts: int) -> None:
    key = documents.key(*value)
    of_document = canonical(key, id_element(key))
    for each in (of_document, None):
        assert sum(Share(n, parts).has(UUID, each) for n in range(parts)) == 1


def test_all_shares_are_about_equal() -> None:
    for identities in (range(900), [f"order {n}" for n in range(900)]):
        counts = [sum(Share(n, 3).has(UUID, group(each)) for each in identities) for n in range(3)]
        assert min(counts) > 200


@pytest.mark.parametrize("number", [7, 2**40, 0, -3])
def test_equal_numbers_belong_to_one_share(number: int) -> None:
    forms = [number, bson.Int64(number), float(number), bson.Decimal128(Decimal(number))]
    assert len({stable_hash(group(each)) for each in forms}) == 1


def test_the_share_is_the_same_in_every_process() -> None:
    value = (15, b"text", (1.5, True, (b"x",)))
    code = (
        f"from syncsvc.engine.events.event_share import stable_hash; print(stable_hash({value!r}))"
    )
    told = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        for _ in range(3)
    }
    assert told == {str(stable_hash(value))}


def test_one_instance_has_everything() -> None:
    assert share_of("a", ()) == Share()
    assert share_of("b", ("a", "b", "c")) == Share(1, 3)
    assert Share().has(UUID, group("any")) and Share().has(UUID, None)
