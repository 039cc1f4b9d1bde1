"""Rechecks are divided into tasks of limited size; each document is in exactly one task."""

from __future__ import annotations

import bson
from hypothesis import given
from hypothesis import strategies as st

from verifier.cluster.namespace import Namespace
from verifier.compare import task
from verifier.compare.task import (
    Recheck,
    RecheckId,
    digest_of,
    key_groups,
    merged,
    recheck_of,
    whole_collection,
)

FIRST, SECOND = Namespace("d", "a"), Namespace("d", "b")


def key(number: int, size: int = 0) -> bytes:
    return bson.encode({"_id": {"n": number, "pad": "p" * size}})


RECHECKS = st.lists(
    st.builds(
        recheck_of,
        st.sampled_from([FIRST, SECOND]),
        st.builds(key, st.integers(0, 30), st.sampled_from([0, 10, 1000])),
        st.none() | st.just(1.0),
    )
)


@given(RECHECKS)
def test_every_document_is_in_one_group(rechecks: list[Recheck]) -> None:
    ordered = sorted(set(rechecks), key=lambda each: each.id)
    groups = list(key_groups(ordered))
    covered = [
        [each for each in ordered if group.first <= each.id <= group.last] for group in groups
    ]
    assert [each for group in covered for each in group] == ordered
    for group, inside in zip(groups, covered, strict=True):
        assert {each.id.namespace for each in inside} == {group.namespace}
        assert len(merged(inside)) == group.documents


def test_a_group_fits_into_one_query() -> None:
    ordered = sorted(recheck_of(FIRST, key(number)) for number in range(2500))
    assert [group.documents for group in key_groups(ordered)] == [1000, 1000, 500]
    large = sorted(recheck_of(FIRST, key(number, task._MOST_KEY_BYTES // 2)) for number in range(3))
    assert [group.documents for group in key_groups(large)] == [1, 1, 1]


def test_a_change_and_a_mismatch_of_a_document_stay_together() -> None:
    rechecks = []
    for number in range(1500):
        rechecks += [recheck_of(FIRST, key(number)), recheck_of(FIRST, key(number), 1.0)]
    groups = list(key_groups(sorted(rechecks)))
    assert [group.documents for group in groups] == [1000, 500]


def test_whole_collections_are_in_no_group() -> None:
    assert list(key_groups([whole_collection(FIRST)])) == []


def test_a_changed_document_loses_its_first_seen_time() -> None:
    digest = digest_of(key(1))
    mismatch, change = recheck_of(FIRST, key(1), 5.0), recheck_of(FIRST, key(1))
    assert merged(sorted([mismatch, change])) == {digest: change}
    assert merged([mismatch]) == {digest: mismatch}
    assert change.id == RecheckId(FIRST, digest, False)
