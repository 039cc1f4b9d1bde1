"""The options of a collection contain its index on `_id` as `idIndex`, unless that index is missing or clustered."""

from __future__ import annotations

from typing import Any

import pytest

from verifier.cluster.inventory import _id_index

ID_INDEX = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
OTHER = {"v": 2, "key": {"a": 1}, "name": "a_1"}


@pytest.mark.parametrize(
    "indexes, added",
    [
        ([ID_INDEX, OTHER], {"idIndex": ID_INDEX}),
        ([OTHER, ID_INDEX], {"idIndex": ID_INDEX}),
        ([OTHER], {}),
        ([{**ID_INDEX, "clustered": True}], {}),
        ([], {}),
    ],
)
def test_the_id_index_is_an_option(indexes: list[dict[str, Any]], added: dict[str, Any]) -> None:
    assert _id_index({"capped": True}, indexes) == {"capped": True, **added}
