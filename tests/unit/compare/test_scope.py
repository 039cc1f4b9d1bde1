"""A check lists the databases and collections that its filter names, but that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.compare.scope import Scope


@pytest.mark.parametrize(
    "element, absent",
    [
        ({"database": "d"}, []),
        ({"database": "e"}, ["e"]),
        ({"database": "d", "collections": ["a", "b"]}, ["d.b"]),
        ({"database": "e", "collections": ["a"]}, ["e.a"]),
        ({"database": "e", "collectionsRegex": {"pattern": "x"}}, ["e"]),
        ({"databaseRegex": {"pattern": "x"}}, []),
    ],
)
def test_selected_names_that_do_not_exist_are_listed(
    element: dict[str, Any], absent: list[str]
) -> None:
    scope = Scope(NamespaceFilter((element,)))
    assert list(scope.absent([Namespace("d", "a")])) == absent
