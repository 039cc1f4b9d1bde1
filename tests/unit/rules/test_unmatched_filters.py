"""Tests which elements of a namespace filter count as unmatched, and what the warnings say about them."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.rules.unmatched_filters import (
    SELECTS_NOTHING,
    FilterMatches,
    Unmatched,
    filter_warnings,
    unmatched_part,
)
from verifier.cluster.namespace import Namespace

SHOP = {"database": "shop"}
REGEX = {"databaseRegex": {"pattern": "^s"}}
PATTERN = {"collectionsRegex": {"pattern": "^order"}}
ORDERS, ITEMS = Namespace("shop", "orders"), Namespace("shop", "items")


@pytest.mark.parametrize(
    "element, present, by_pattern, expected",
    [
        (SHOP, [ITEMS], [], None),
        (SHOP, [], [], SHOP),
        (REGEX, [ITEMS], [], None),
        (REGEX, [], [], REGEX),
        ({**SHOP, "collections": ["items"]}, [ITEMS], [], None),
        ({**SHOP, "collections": ["items", "x"]}, [ITEMS], [], {**SHOP, "collections": ["x"]}),
        ({**SHOP, "collections": ["items"]}, [], [], {**SHOP, "collections": ["items"]}),
        ({**SHOP, **PATTERN}, [ORDERS], [ORDERS], None),
        ({**SHOP, **PATTERN}, [ITEMS], [], {**SHOP, **PATTERN}),
        ({**SHOP, "collections": ["items"], **PATTERN}, [ITEMS], [], {**SHOP, **PATTERN}),
        (
            {**REGEX, "collections": ["x"], **PATTERN},
            [ORDERS],
            [ORDERS],
            {**REGEX, "collections": ["x"]},
        ),
    ],
)
def test_a_part_without_a_match_is_unmatched(
    element: dict[str, Any],
    present: list[Namespace],
    by_pattern: list[Namespace],
    expected: dict[str, Any] | None,
) -> None:
    assert unmatched_part(element, present, by_pattern) == expected


def warned(part: dict[str, Any], *present: Namespace, path: str = "includeNamespaces[2]") -> str:
    databases = tuple(f"d{n:02}" for n in range(20)) + ("shop", "shops")
    found = FilterMatches(unmatched=(Unmatched(path, part, present),), databases=databases)
    (text,) = filter_warnings(found)
    return text


def test_a_missing_database_is_compared_with_the_databases() -> None:
    assert warned({"database": "Shop"}) == (
        'includeNamespaces[2]: {"database": "Shop"} matches no collection or view of the source, so nothing is copied '
        "for it until such a collection or view is created. Compare the spelling and the case of the names. The "
        "databases of the source are: shop, shops, d00, d01, d02, d03, d04, d05, d06, d07 and 12 more."
    )
    assert "are: d00, d01," in warned({"databaseRegex": {"pattern": "^Shop$"}})


def test_a_missing_collection_is_compared_with_its_database() -> None:
    text = warned({**SHOP, "collections": ["Orders"]}, ITEMS, ORDERS)
    assert '{"database": "shop", "collections": ["Orders"]} matches no' in text
    assert text.endswith("The collections and views of shop are: shop.orders, shop.items.")
    text = warned({**REGEX, "collections": ["Orders"]}, ITEMS)
    assert text.endswith("The collections and views of the matching databases are: shop.items.")


def test_an_exclusion_excludes_nothing() -> None:
    text = warned(SHOP, path="excludeNamespaces[0]")
    assert text.startswith('excludeNamespaces[0]: {"database": "shop"} matches no collection')
    assert "so nothing is excluded by it until" in text


def test_only_some_of_many_missing_collections_are_named() -> None:
    text = warned({**SHOP, "collections": [f"c{n}" for n in range(7)]}, ITEMS)
    assert '"collections": ["c0", "c1", "c2", "c3", "c4"]} (and 2 more of its collections)' in text


def test_a_filter_without_any_match_is_reported_first() -> None:
    unmatched = Unmatched("includeNamespaces[0]", SHOP, ())
    first, second = filter_warnings(FilterMatches(selects_nothing=True, unmatched=(unmatched,)))
    assert first.startswith(f"{SELECTS_NOTHING}. ")
    assert second.endswith("The source holds no collections or views.")


def test_a_filter_that_matches_is_not_reported() -> None:
    assert not [*filter_warnings(FilterMatches(databases=("shop",)))]


def test_only_some_of_many_unmatched_elements_have_a_warning() -> None:
    unmatched = [Unmatched(f"includeNamespaces[{n}]", {"database": f"x{n}"}, ()) for n in range(25)]
    *texts, last = filter_warnings(FilterMatches(unmatched=tuple(unmatched), databases=("shop",)))
    assert [text.partition(":")[0] for text in texts] == [each.path for each in unmatched[:10]]
    assert last == (
        "Further elements of the filters of which at least a part matches no collection or view of the source: 15, "
        "from includeNamespaces[10] on."
    )


def test_of_very_many_names_those_with_the_same_beginning_are_compared() -> None:
    present = [*(Namespace("shop", f"c{n:05}") for n in range(5_000)), ORDERS]
    text = warned({**SHOP, "collections": ["Order"]}, *present)
    assert "The collections and views of shop are: shop.orders, shop.c00000, " in text
