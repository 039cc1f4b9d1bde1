"""Tests that the index on `_id` counts as an option of its collection, and how indexes are read from the catalog.

`listIndexes` repairs some definitions. Such indexes must be listed; the others are converted as in a listing.
"""

from __future__ import annotations

from typing import Any

import pytest

from verifier.cluster.inventory import _converted, _id_index, _is_sound

ID_INDEX = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
COLLATION = {"locale": "en"}
OTHER = {"v": 2, "key": {"a": 1}, "name": "a_1"}


@pytest.mark.parametrize(
    "indexes, added",
    [
        ([ID_INDEX, OTHER], {"idIndex": ID_INDEX}),
        ([OTHER, ID_INDEX], {"idIndex": ID_INDEX}),
        ([{**ID_INDEX, "collation": COLLATION}], {"idIndex": {**ID_INDEX, "collation": COLLATION}}),
        ([{**ID_INDEX, "unique": True, "background": True}], {"idIndex": ID_INDEX}),
        ([{**ID_INDEX, "expireAfterSeconds": 1, "sparse": True}], {"idIndex": ID_INDEX}),
        ([OTHER], {}),
        ([{**ID_INDEX, "clustered": True}], {}),
        ([], {}),
    ],
)
def test_the_id_index_is_an_option(indexes: list[dict[str, Any]], added: dict[str, Any]) -> None:
    assert _id_index({"capped": True}, indexes) == {"capped": True, **added}


@pytest.mark.parametrize(
    "options, sound",
    [
        ({}, True),
        ({"sparse": 1, "unique": True, "expireAfterSeconds": 3600.5}, True),
        ({"expireAfterSeconds": 2**31 - 1, "partialFilterExpression": {"a": 1}}, True),
        ({"safe": None}, False),
        ({"sparse": "yes"}, False),
        ({"background": None}, False),
        ({"expireAfterSeconds": float("nan")}, False),
        ({"expireAfterSeconds": -1}, False),
        ({"expireAfterSeconds": 2**31}, False),
        ({"expireAfterSeconds": "60"}, False),
    ],
)
def test_an_index_that_a_listing_would_repair_is_not_sound(
    options: dict[str, Any], sound: bool
) -> None:
    assert _is_sound({**OTHER, **options}) is sound


def test_numbers_of_the_catalog_are_converted_as_in_a_listing() -> None:
    options = {"sparse": 1, "background": 0.0, "expireAfterSeconds": 1000.5}
    converted = _converted({**OTHER, **options})
    assert converted == {**OTHER, "sparse": True, "background": False, "expireAfterSeconds": 1000}
    assert [type(converted[name]) for name in options] == [bool, bool, int]
