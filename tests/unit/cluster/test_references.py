"""The names of collections in the pipelines of views are replaced, and nothing else changes.

A pipeline with a reference that cannot be replaced is refused.
"""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.code import Code
from bson.raw_bson import RawBSONDocument

from verifier.cluster.references import NotRewritable, rewritten


def rename(name: str) -> str:
    return f"new {name}"


LOOKUP = {"from": "a", "localField": "from", "foreignField": "b", "as": "from"}
REWRITTEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"$match": {"from": "a", "coll": "a"}}, {"$match": {"from": "a", "coll": "a"}}),
    ({"$lookup": LOOKUP}, {"$lookup": {**LOOKUP, "from": "new a"}}),
    (
        {
            "$lookup": {
                "as": "x",
                "pipeline": [{"$unionWith": "b"}],
                "from": "a",
                "let": {"from": "a"},
            }
        },
        {
            "$lookup": {
                "as": "x",
                "pipeline": [{"$unionWith": "new b"}],
                "from": "new a",
                "let": {"from": "a"},
            }
        },
    ),
    (
        {"$lookup": {"pipeline": [{"$documents": [{"from": "a"}]}], "as": "x"}},
        {"$lookup": {"pipeline": [{"$documents": [{"from": "a"}]}], "as": "x"}},
    ),
    ({"$unionWith": "a"}, {"$unionWith": "new a"}),
    (
        {"$unionWith": {"coll": "a", "pipeline": [{"$lookup": LOOKUP}]}},
        {"$unionWith": {"coll": "new a", "pipeline": [{"$lookup": {**LOOKUP, "from": "new a"}}]}},
    ),
    (
        {
            "$graphLookup": {
                "from": "a",
                "startWith": "$from",
                "restrictSearchWithMatch": {"from": "a"},
            }
        },
        {
            "$graphLookup": {
                "from": "new a",
                "startWith": "$from",
                "restrictSearchWithMatch": {"from": "a"},
            }
        },
    ),
    (
        {"$facet": {"from": [{"$lookup": LOOKUP}, {"$count": "a"}], "coll": []}},
        {
            "$facet": {
                "from": [{"$lookup": {**LOOKUP, "from": "new a"}}, {"$count": "a"}],
                "coll": [],
            }
        },
    ),
    ({"$lookup": {**LOOKUP, "from": "ä"}}, {"$lookup": {**LOOKUP, "from": "new ä"}}),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"$search": {}},
        "the view's pipeline has the stage $search, which may refer to other collections",
    ),
    ({"$facet": {"x": [{"$out": "a"}]}}, "the stage $out"),
    ({"$lookup": {"from": {"db": "d", "coll": "a"}}}, "in a form other than a plain string"),
    ({"$unionWith": {"db": "d", "coll": "a"}}, "the field `db`, which may name another database"),
    ({"$unionWith": ["a"]}, "$unionWith in the view's pipeline is not a document"),
    ({"$match": {}, "$limit": 1}, r"must have one field, but has 2: \[$match, $limit\]"),
    ({"$lookup": {"from": "a", "pipeline": {"0": {"$limit": 1}}}}, "that is not an array"),
    ({"$lookup": {"from": "a", "pipeline": [1]}}, "is not a document"),
    ({"$facet": [{"$limit": 1}]}, "$facet in the view's pipeline is not a document"),
]


@pytest.mark.parametrize("stage, expected", REWRITTEN)
def test_names_are_replaced(stage: dict[str, Any], expected: dict[str, Any]) -> None:
    for pipeline in ([stage], [RawBSONDocument(bson.encode(stage))]):
        (found,) = rewritten(pipeline, rename)
        assert bson.encode(found) == bson.encode(expected)


@pytest.mark.parametrize("stage, reason", REFUSED)
def test_references_that_cannot_be_replaced_are_refused(stage: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotRewritable, match=reason.replace("$", r"\$")):
        rewritten([stage], rename)


def test_other_values_keep_their_bytes() -> None:
    symbol = b"\x0e\0\0\0\x0es\0\x02\0\0\0a\0\0"
    values = bson.encode({"x": RawBSONDocument(symbol), "code": Code("x"), "long": bson.Int64(1)})
    fields = (
        bson.encode({"from": "a", "as": "x"})[4:-1] + values[4:-1] + bson.encode({"as": "y"})[4:-1]
    )
    body = (len(fields) + 5).to_bytes(4, "little") + fields + b"\0"
    stage = b"\x03$lookup\0" + body
    stage = (len(stage) + 5).to_bytes(4, "little") + stage + b"\0"
    (found,) = rewritten([RawBSONDocument(stage)], rename)
    assert isinstance(found, RawBSONDocument)
    old, new = b"\x02from\0\x02\0\0\0a\0", b"\x02from\0\x06\0\0\0new a\0"
    assert len(found.raw) == len(stage) + 4
    assert found.raw[found.raw.index(new) + len(new) :] == stage[stage.index(old) + len(old) :]
