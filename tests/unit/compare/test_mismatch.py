"""Each mismatch is described by a sentence. If its namespaces differ, both are shown and saved."""

from __future__ import annotations

from dataclasses import replace

import bson
import pytest

from verifier.cluster.namespace import Namespace
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    FieldDifference,
    StoredMismatch,
)
from verifier.compare.mismatch_lines import line
from verifier.compare.rows import (
    definition_mismatch_row,
    document_mismatch_row,
    read_definition_mismatch,
    read_document_mismatch,
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


def test_a_mismatch_names_both_namespaces_if_they_differ() -> None:
    sales = Namespace("store", "sales")
    document = DocumentMismatch(ORDERS, bson.encode({"_id": 7}), Difference.MISSING, (), sales)
    definition = DefinitionMismatch(ORDERS, Difference.EXTRA, Aspect.INDEX, "a_1", "", sales)
    assert str(document) == (
        "shop.orders (store.sales on the destination): the document with _id int 7 is missing on the destination"
    )
    assert str(definition).startswith("shop.orders (store.sales on the destination): index a_1 is")
    assert read_document_mismatch(document_mismatch_row(document, {}, 1.0)) == document
    assert read_definition_mismatch(definition_mismatch_row(definition, 1.0)) == definition
    for each in (document, definition):
        shown = line(StoredMismatch(each, 1, 1.0, 1.0, "ab"))
        assert (shown["namespace"], shown["destinationNamespace"]) == ("shop.orders", "store.sales")
        same = line(StoredMismatch(replace(each, destination=None), 1, 1.0, 1.0, "ab"))
        assert "destinationNamespace" not in same
