"""Two streams of pages are compared: exactly the documents that differ are suspects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import bson
import pytest
from bson import Int64
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.documents import Field, document, int32
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawcursor import Page
from verifier.compare import pairing
from verifier.compare.pairing import DocumentPairing, compare_document

Documents = list[dict[str, Any]]


def page(chunk: Iterable[dict[str, Any]]) -> Page:
    raw = bson.encode({"cursor": {"firstBatch": list(chunk)}})
    return Page(raw, raw.index(b"firstBatch\0") + 11, None, None)


def pages(documents: Documents, sizes: Iterable[int]) -> Iterator[Page]:
    """The documents in pages of these sizes, the last of which goes on for ever."""
    left, last = list(documents), 1
    for last in sizes:
        yield page(left[:last])
        left = left[last:]
    while left:
        yield page(left[: max(last, 1)])
        left = left[max(last, 1) :]


def suspects(
    source: Documents,
    destination: Documents,
    source_sizes: Sequence[int] = (2,),
    destination_sizes: Sequence[int] = (2,),
) -> list[Any]:
    found = DocumentPairing().suspects(
        pages(source, source_sizes), pages(destination, destination_sizes)
    )
    return [bson.decode(key)["_id"] for key in found]


ABC: Documents = [{"_id": name, "n": 1} for name in "abc"]


@pytest.mark.parametrize(
    "source, destination, expected",
    [
        ([], [], ""),
        (ABC, ABC, ""),
        (ABC, [], "abc"),
        ([], ABC, "abc"),
        (ABC, ABC[1:], "a"),
        (ABC, ABC[:2], "c"),
        (ABC[:1] + ABC[2:], ABC, "b"),
        (ABC, [*ABC[:2], {"_id": "c", "n": 2}], "c"),
        (ABC, [{"_id": "a", "n": 1.0}, *ABC[1:]], "a"),
        (ABC, [{"_id": "a", "n": Int64(1)}, *ABC[1:]], "a"),
        ([{"_id": "a", "x": 1, "y": 2}], [{"_id": "a", "y": 2, "x": 1}], "a"),
        (ABC, ABC[::-1], ""),
        ([{"_id": "a"}, {"_id": "b"}], [{"_id": "a"}, {"_id": "c"}], "bc"),
    ],
)
def test_what_differs_is_suspect(source: Documents, destination: Documents, expected: str) -> None:
    assert sorted(suspects(source, destination)) == list(expected)


@pytest.mark.parametrize("sizes", [[1], [2], [3], [7], [1, 7], [0, 3, 1]])
def test_the_borders_of_pages_mean_nothing(sizes: list[int]) -> None:
    source = [{"_id": number} for number in range(20)]
    destination = [each for each in source if each["_id"] not in (0, 7, 19)]
    assert sorted(suspects(source, destination, [3], sizes)) == [0, 7, 19]


def test_ids_of_equal_value_and_other_type_are_both_suspect() -> None:
    found = suspects([{"_id": 1}], [{"_id": Int64(1)}])
    assert sorted(map(type, found), key=str) == sorted([int, Int64], key=str)


collections = st.dictionaries(st.integers(0, 30), st.integers(0, 3), max_size=20)
page_sizes = st.lists(st.integers(0, 7), min_size=1, max_size=4)


def stored(collection: dict[int, int]) -> Documents:
    return [{"_id": key, "n": collection[key]} for key in sorted(collection)]


def differing(one: dict[int, int], other: dict[int, int]) -> list[int]:
    return sorted(key for key in one | other if one.get(key) != other.get(key))


@given(collections, collections, page_sizes, page_sizes)
def test_suspects_are_exactly_what_differs(
    source: dict[int, int],
    destination: dict[int, int],
    source_sizes: list[int],
    destination_sizes: list[int],
) -> None:
    found = suspects(stored(source), stored(destination), source_sizes, destination_sizes)
    assert sorted(found) == differing(source, destination)


@given(collections, st.dictionaries(st.integers(0, 30), st.integers(0, 3), max_size=2), page_sizes)
def test_a_few_changes_are_found_among_many(
    source: dict[int, int], changes: dict[int, int], sizes: list[int]
) -> None:
    destination = source | changes
    found = suspects(stored(source), stored(destination), [5], sizes)
    assert sorted(found) == differing(source, destination)


@given(source=collections, destination=collections, sizes=page_sizes)
def test_with_little_memory_more_is_suspect_and_never_less(
    source: dict[int, int], destination: dict[int, int], sizes: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "_PENDING_BYTES", 40)
        found = suspects(stored(source), stored(destination), sizes, [2])
    assert {*differing(source, destination)} <= {*found} <= {*source, *destination}


def test_what_is_unmatched_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_PENDING_BYTES", 100)
    matching = DocumentPairing()
    source = [{"_id": number} for number in range(1000)]

    def watched() -> Iterator[Page]:
        for each in pages(source, [5]):
            assert len(matching._pending[0]) <= 15
            yield each

    assert len(list(matching.suspects(watched(), iter(())))) == 1000


def test_what_is_matched_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_PENDING_BYTES", 200)
    both = [{"_id": number} for number in range(1000)]
    assert suspects(both, both, [7], [3, 7]) == []


def test_the_sources_documents_and_bytes_are_counted() -> None:
    matching = DocumentPairing()
    assert list(matching.suspects(pages(ABC, [2]), pages(ABC[:1], [2])))
    assert (matching.documents, matching.size) == (3, sum(len(bson.encode(each)) for each in ABC))


def mismatch(source: dict[str, Any] | None, destination: dict[str, Any] | None) -> str:
    raws = [None if each is None else bson.encode(each) for each in (source, destination)]
    return str(compare_document(Namespace("d", "c"), bson.encode({"_id": 1}), *raws))


@pytest.mark.parametrize(
    "source, destination, text",
    [
        (None, None, "None"),
        ({"_id": 1}, {"_id": 1}, "None"),
        ({"_id": 1}, None, "d.c: the document {'_id': 1} is missing on the destination"),
        (None, {"_id": 1}, "d.c: the document {'_id': 1} is extra on the destination"),
    ],
)
def test_one_document_is_compared(
    source: dict[str, Any] | None, destination: dict[str, Any] | None, text: str
) -> None:
    assert mismatch(source, destination) == text


@pytest.mark.parametrize(
    "source, destination, detail",
    [
        ({"a": 1, "b": 2, "c": 3}, {"c": 4, "a": 1, "b": 3}, "b: different; c: different"),
        ({"a": 1}, {"a": 1.0}, "a: different"),
        ({"a": 1}, {}, "a: different"),
        ({}, {"ä": 1}, "ä: different"),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, "a: different"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "order of fields"),
    ],
)
def test_the_fields_that_differ_are_named(
    source: dict[str, Any], destination: dict[str, Any], detail: str
) -> None:
    assert mismatch({"_id": 1, **source}, {"_id": 1, **destination}).endswith(f"{detail})")


def test_a_field_that_is_there_twice_on_one_side_is_named() -> None:
    once = Field(0x10, b"a", int32(1))
    key = Field(0x10, b"_id", int32(1))
    found = compare_document(
        Namespace("d", "c"), document(key), document(key, once, once), document(key, once)
    )
    assert found is not None and [each.path for each in found.fields] == ["a"]


def test_a_name_that_is_no_text_is_shown_all_the_same() -> None:
    key = Field(0x10, b"_id", int32(1))
    odd = document(key, Field(0x0A, b"a\xff", b""))
    found = compare_document(Namespace("d", "c"), document(key), odd, document(key))
    assert found is not None and [each.path for each in found.fields] == ["a\ufffd"]
