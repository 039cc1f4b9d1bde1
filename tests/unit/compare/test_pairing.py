"""Tests that pairing two streams of documents yields every document that differs, with bounded memory.

Documents that are equal may be yielded, too, if the memory is too small or if several documents share an `_id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import bson
import pytest
from bson import Int64
from hypothesis import example, given
from hypothesis import strategies as st

from verifier.cluster.keys import id_only
from verifier.cluster.rawcursor import Page
from verifier.compare import pairing
from verifier.compare.documents import Mode
from verifier.compare.order import Order, any_order, simple_order
from verifier.compare.pairing import Pairing, Unequal
from verifier.compare.tuning import CheckTuning

Documents = list[dict[str, Any]]


class Stream:
    """A fake stream of pages of documents. It records the requested page sizes in `asked`.

    A page has at most `shortest` documents, as if a server had cut it short. The last page has fewer documents than
    `shortest` and than requested; after the last page, `read` returns None.
    """

    def __init__(self, documents: Documents, shortest: int = 1 << 30) -> None:
        self._left = list(documents)
        self._most = shortest
        self.asked: list[int] = []
        self._ended = False

    def read(self, size: int) -> Page | None:
        self.asked.append(size)
        if self._ended:
            return None
        count = min(size, self._most)
        chunk, self._left = self._left[:count], self._left[count:]
        # Like a server, announce the end only by a page that is not full.
        self._ended = not self._left and len(chunk) < count
        raw = bson.encode({"firstBatch": chunk})
        return Page(raw, raw.index(b"firstBatch\0") + 11, None, None)


def ignore_progress(documents: int, size: int) -> None:
    """Ignore the numbers of compared documents and bytes. A comparison calls this function to report its progress."""


# The page size of a test, in documents.
SIZES: list[int] = []


def tuning(**more: Any) -> CheckTuning:
    return CheckTuning(**{"first_page": SIZES[-1], "most_page": SIZES[-1], **more})


def unequal(pairing: Pairing) -> Iterator[Unequal]:
    while (found := pairing.step()) is not None:
        yield from found


def paired(
    source: Documents | Stream,
    destination: Documents | Stream,
    order: Order = simple_order,
    mode: Mode = Mode.BINARY,
    on_progress: Callable[[int, int], None] = ignore_progress,
    **more: Any,
) -> list[tuple[Any, Any, Any]]:
    streams = [each if isinstance(each, Stream) else Stream(each) for each in (source, destination)]
    found = unequal(Pairing(streams[0], streams[1], mode, order, on_progress, tuning(**more)))
    return [
        (bson.decode(each.key)["_id"], *(raw and bson.decode(raw) for raw in each[1:]))
        for each in found
    ]


def keys(source: Documents | Stream, destination: Documents | Stream, **more: Any) -> list[Any]:
    return [key for key, *_ in paired(source, destination, **more)]


ABC: Documents = [{"_id": name, "n": 1} for name in "abc"]
ORDERS = [simple_order, any_order]


@pytest.fixture(params=[1, 2, 3, 1000], autouse=True)
def page_size(request: pytest.FixtureRequest) -> Iterator[None]:
    SIZES.append(request.param)
    yield
    SIZES.pop()


@pytest.mark.parametrize("order", ORDERS)
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
        ([{"_id": "a"}, {"_id": "b"}], [{"_id": "a"}, {"_id": "c"}], "bc"),
    ],
)
def test_unequal_documents_are_yielded(
    source: Documents, destination: Documents, expected: str, order: Order
) -> None:
    assert sorted(keys(source, destination, order=order)) == list(expected)


def test_a_yielded_difference_has_the_documents_of_both_sides() -> None:
    one, other = {"_id": 2, "n": 1}, {"_id": 2, "n": 2}
    found = paired([{"_id": 1}, one], [other, {"_id": 3}])
    assert sorted(found, key=lambda each: int(each[0])) == [
        (1, {"_id": 1}, None),
        (2, one, other),
        (3, None, {"_id": 3}),
    ]


def test_the_order_of_fields_may_be_ignored() -> None:
    one, other = {"_id": 1, "a": 1, "b": 2}, {"_id": 1, "b": 2, "a": 1}
    assert paired([one], [other], mode=Mode.IGNORE_FIELD_ORDER) == []
    assert keys([one], [{**other, "a": 2}], mode=Mode.IGNORE_FIELD_ORDER) == [1]


@pytest.mark.parametrize("shortest", [(1, 7), (7, 1), (2, 3), (3, 2)])
def test_short_pages_do_not_change_the_result(shortest: tuple[int, int]) -> None:
    source = [{"_id": number} for number in range(20)]
    destination = [each for each in source if each["_id"] not in (0, 7, 19)]
    found = keys(Stream(source, shortest[0]), Stream(destination, shortest[1]))
    assert sorted(found) == [0, 7, 19]


@pytest.mark.parametrize("order", ORDERS)
def test_ids_of_equal_value_and_different_type_are_two_documents(order: Order) -> None:
    both = [{"_id": 0}], [{"_id": 2}]
    source, destination = ([*both[0], {"_id": each}, *both[1]] for each in (1, Int64(1)))
    found = paired(source, destination, order=order)
    assert sorted(type(each[0]).__name__ for each in found) == ["Int64", "int"]


lengths = st.integers(1, 7)
# Documents as from two shards: several documents can have the same key, and those are in any order.
shards = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), unique=True, max_size=20)


@given(shards, shards, lengths, lengths)
@example([(0, 0), (1, 0), (2, 0), (2, 1)], [(2, 1), (3, 0)], 2, 2)
def test_documents_that_share_a_key_are_not_lost(
    source: list[tuple[int, int]],
    destination: list[tuple[int, int]],
    source_page: int,
    destination_page: int,
) -> None:
    sides = [
        [{"_id": key, "n": n} for key, n in sorted(side, key=lambda each: each[0])]
        for side in (source, destination)
    ]
    found = keys(Stream(sides[0], source_page), Stream(sides[1], destination_page))
    assert {*found} >= {key for key, _ in {*source} ^ {*destination}}
    # In a single page, as in a recheck, the order does not matter.
    if source_page == destination_page == 7 and max(map(len, sides)) < 7:
        found = keys(*sides, first_page=1000)
        assert {*found} == {key for key, _ in {*source} ^ {*destination}}


collections = st.dictionaries(st.integers(0, 30), st.integers(0, 3), max_size=20)


def stored(collection: dict[int, int]) -> Documents:
    return [{"_id": key, "n": collection[key]} for key in sorted(collection)]


def differing(one: dict[int, int], other: dict[int, int]) -> list[int]:
    return sorted(key for key in one | other if one.get(key) != other.get(key))


def unordered(first: bytes, second: bytes) -> bool:
    """Return False: in this order of keys, no key comes before another one."""
    return False


@given(collections, collections, lengths, lengths, st.sampled_from([simple_order, unordered]))
def test_exactly_the_differing_documents_are_found(
    source: dict[int, int],
    destination: dict[int, int],
    source_page: int,
    destination_page: int,
    order: Order,
) -> None:
    streams = Stream(stored(source), source_page), Stream(stored(destination), destination_page)
    assert sorted(keys(*streams, order=order)) == differing(source, destination)


@given(collections, st.dictionaries(st.integers(0, 30), st.integers(0, 3), max_size=2))
def test_a_few_changes_are_found_among_many(
    source: dict[int, int], changes: dict[int, int]
) -> None:
    destination = source | changes
    assert sorted(keys(stored(source), stored(destination))) == differing(source, destination)


@given(source=collections, destination=collections)
def test_with_little_memory_no_difference_is_missed(
    source: dict[int, int], destination: dict[int, int]
) -> None:
    found = keys(stored(source), stored(destination), order=unordered, unmatched_bytes=40)
    assert {*differing(source, destination)} <= {*found} <= {*source, *destination}


NUMBERS: Documents = [{"_id": number} for number in range(1000)]


@pytest.mark.parametrize("missing", [0, 1, 500, 999])
@pytest.mark.parametrize("swapped", [False, True])
def test_both_sides_realign_after_a_missing_document(
    missing: int, swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[bytes] = []

    def noted(raw: bytes) -> bytes:
        cut.append(raw)
        return id_only(raw)

    monkeypatch.setattr(pairing, "id_only", noted)
    sides = [NUMBERS, NUMBERS[:missing] + NUMBERS[missing + 1 :]]
    assert keys(*(sides[::-1] if swapped else sides)) == [missing]
    assert len(cut) < 12


@pytest.mark.parametrize("swapped", [False, True])
def test_a_long_run_of_missing_documents_needs_little_memory(swapped: bool) -> None:
    sides = [Stream(each) for each in (NUMBERS, NUMBERS[:5] + NUMBERS[-5:])]
    source, destination = reversed(sides) if swapped else sides
    found = Pairing(
        source, destination, Mode.BINARY, simple_order, ignore_progress, tuning(first_page=10)
    )
    for number, each in enumerate(unequal(found)):
        assert bson.decode(each.key)["_id"] == number + 5
        assert len(found._source.unmatched) + len(found._destination.unmatched) < 20


def test_compared_documents_are_reported() -> None:
    on_progress: list[tuple[int, int]] = []
    paired(
        NUMBERS, NUMBERS[:700] + NUMBERS[710:], on_progress=lambda *each: on_progress.append(each)
    )
    documents, size = (sum(each) for each in zip(*on_progress))
    assert documents == 1000
    assert size >= 1000 * len(bson.encode({"_id": 1}))


def test_aligned_is_the_key_up_to_which_all_is_compared() -> None:
    found = Pairing(
        Stream(NUMBERS),
        Stream(NUMBERS[:500] + NUMBERS[501:]),
        Mode.BINARY,
        simple_order,
        ignore_progress,
        tuning(),
    )
    assert found.aligned is None
    (difference,) = unequal(found)
    assert bson.decode(difference.key) == {"_id": 500}
    assert found.aligned == bson.encode({"_id": 999})


class Broken(Stream):
    def read(self, size: int) -> Page | None:
        if len(self.asked) > 9:
            raise ConnectionError
        return super().read(size)


@given(st.lists(st.integers(0, 99), unique=True, max_size=9), st.integers(1, 9))
def test_after_a_failure_the_rest_can_be_compared(missing: Sequence[int], length: int) -> None:
    source = NUMBERS[:100]
    destination = [each for each in source if each["_id"] not in missing]
    broken = Pairing(
        Broken(source, length),
        Stream(destination, length),
        Mode.BINARY,
        simple_order,
        ignore_progress,
        tuning(),
    )
    found: set[bytes] = set()
    with pytest.raises(ConnectionError):
        found.update(each.key for each in unequal(broken))
        raise ConnectionError
    place = -1 if broken.aligned is None else bson.decode(broken.aligned)["_id"]
    rest = ([each for each in side if each["_id"] > place] for side in (source, destination))
    assert {*broken_keys(found), *keys(*rest)} == {*missing}


def broken_keys(found: set[bytes]) -> list[int]:
    return [bson.decode(each)["_id"] for each in found]
