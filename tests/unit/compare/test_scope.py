"""Names on the source and on the destination are mapped to each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.compare.scope import Scope

RENAMED = Scope(
    renamed={
        Namespace("d", "a"): Namespace("x", "b"),
        Namespace("e", ""): Namespace("f", ""),
    }
)


@pytest.mark.parametrize(
    "source, destination",
    [("d.a", "x.b"), ("d.c", "d.c"), ("e.a", "f.a"), ("e.b", "f.b"), ("g.a", "g.a")],
)
def test_names_are_mapped_in_both_directions(source: str, destination: str) -> None:
    here, there = Namespace(*source.split(".")), Namespace(*destination.split("."))
    assert RENAMED.on_destination(here) == there
    assert RENAMED.on_source(there) == here


def test_destination_names_without_a_source_name() -> None:
    assert RENAMED.on_source(Namespace("d", "a")) is None
    assert RENAMED.on_source(Namespace("e", "z")) is None


def test_a_collection_is_renamed_apart_from_its_database() -> None:
    scope = Scope(
        renamed={
            Namespace("e", ""): Namespace("f", ""),
            Namespace("e", "a"): Namespace("g", "a"),
        }
    )
    assert scope.on_destination(Namespace("e", "a")) == Namespace("g", "a")
    assert scope.on_destination(Namespace("e", "b")) == Namespace("f", "b")
    assert scope.on_source(Namespace("g", "a")) == Namespace("e", "a")


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


NAMES = st.builds(Namespace, st.sampled_from("defx"), st.sampled_from("abc"))


@given(NAMES)
def test_a_mapped_name_maps_back_to_itself(name: Namespace) -> None:
    source = RENAMED.on_source(name)
    assert source is None or RENAMED.on_destination(source) == name
