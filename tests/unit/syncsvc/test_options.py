"""Tests the properties of StartOptions that are computed from the values of its options."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.options import BuildIndexes, StartOptions
from verifier.cluster.namespace import Namespace


@pytest.mark.parametrize(
    "build, after_copy, hashed",
    [
        (BuildIndexes.BEFORE_DATA_COPY, False, True),
        (BuildIndexes.AFTER_DATA_COPY, True, True),
        (BuildIndexes.EXCLUDE_HASHED, False, False),
        (BuildIndexes.EXCLUDE_HASHED_AFTER_COPY, True, False),
        (BuildIndexes.NEVER, False, False),
    ],
)
def test_when_and_which_indexes_each_value_builds(
    build: BuildIndexes, after_copy: bool, hashed: bool
) -> None:
    assert (build.after_copy, build.hashed) == (after_copy, hashed)


@pytest.mark.parametrize(
    "option, named",
    [
        ([], False),
        ([{"database": "."}], True),
        ([{"database": "d"}], True),
        ([{"database": "e"}], False),
        ([{"database": "d", "collections": ["b", "c"]}], True),
        ([{"database": "d", "collections": ["b"]}, {"database": "e", "collections": ["c"]}], False),
        ([{"database": "d", "collections": ["b"]}, {"database": ".", "collections": ["c"]}], True),
    ],
)
def test_the_option_names_a_collection(option: list[dict[str, Any]], named: bool) -> None:
    options = StartOptions("cluster0", "cluster1", copy_in_natural_order=tuple(option))
    assert options.in_natural_order(Namespace("d", "c")) is named
