"""Each mismatch is described by a sentence."""

from __future__ import annotations

import bson
import pytest

from verifier.cluster.namespace import Namespace
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    FieldDifference,
)

ORDERS = Namespace("shop", "orders")


@pytest.mark.parametrize(
    "difference, fields, text",
    [
        (Difference.MISSING, [], "missing on the destination"),
        (Difference.EXTRA, [], "extra on the destination"),
        (Difference.CONTENT, [("a.b", "1, 2"), ("c", "3, 4")], "different (a.b: 1, 2; c: 3, 4)"),
        (Difference.CONTENT, [("", "other order")], "different (other order)"),
    ],
)
def test_a_mismatch_of_a_document_is_a_sentence(
    difference: Difference, fields: list[tuple[str, str]], text: str
) -> None:
    named = tuple(FieldDifference(*each) for each in fields)
    mismatch = DocumentMismatch(ORDERS, bson.encode({"_id": 7}), difference, named)
    assert str(mismatch) == f"shop.orders: the document with _id int 7 is {text}"


@pytest.mark.parametrize(
    "difference, aspect, component, detail, text",
    [
        (
            Difference.MISSING,
            Aspect.EXISTENCE,
            "",
            "a view",
            "it is missing on the destination (a view)",
        ),
        (Difference.MISSING, Aspect.INDEX, "a_1", "", "index a_1 is missing on the destination"),
        (Difference.EXTRA, Aspect.OPTION, "max", "", "option max is extra on the destination"),
        (Difference.CONTENT, Aspect.INDEX, "a_1", "1, 2", "index a_1 is different (1, 2)"),
        (Difference.CONTENT, Aspect.KIND, "", "1, 2", "its type is different (1, 2)"),
        (
            Difference.CONTENT,
            Aspect.COUNT,
            "",
            "1, 2",
            "its number of documents is different (1, 2)",
        ),
    ],
)
def test_a_mismatch_of_a_definition_is_a_sentence(
    difference: Difference, aspect: Aspect, component: str, detail: str, text: str
) -> None:
    mismatch = DefinitionMismatch(ORDERS, difference, aspect, component, detail)
    assert str(mismatch) == f"shop.orders: {text}"
