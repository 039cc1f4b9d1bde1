"""A Block (documents without their BSON array) has the same documents as the array or page that it was made from.

An array with other values than documents, or with invalid lengths, is an error.
"""

from __future__ import annotations

import bson
import pytest
from bson import MaxKey
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import documents
from tests.unit.documents import Field, array, document
from verifier.cluster import block
from verifier.cluster.block import Block
from verifier.cluster.rawbson import MalformedBson, array_documents
from verifier.cluster.rawcursor import Page

COUNTS = [0, 1, 2, 9, 10, 11, 99, 100, 101, 110, 999, 1000, 1001, 10_001]


def array_of(raws: list[bytes]) -> bytes:
    return array(*((0x03, raw) for raw in raws))


@pytest.fixture(params=["driver", "own"])
def joined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test twice: with the driver's function that joins an array's documents, and with the product's own one.

    The product uses its own function if the driver has none.
    """
    if request.param == "own":
        monkeypatch.setattr(block, "_joined", block._join)


@pytest.mark.usefixtures("joined")
class TestArrays:
    @pytest.mark.parametrize("count", COUNTS)
    def test_all_documents_are_in_the_block(self, count: int) -> None:
        raws = [bson.encode({"_id": n, "a": {"0": {}}}) for n in range(count)]
        assert Block.of_array(memoryview(array_of(raws))) == Block.of(raws)

    @pytest.mark.parametrize(
        "raw",
        [
            array((0x10, bytes(4))),
            document(Field(0x03, b"0", document()), Field(0x03, b"12", document())),
            array_of([document()])[:-2],
        ],
    )
    def test_other_bytes_are_malformed(self, raw: bytes) -> None:
        with pytest.raises(MalformedBson):
            Block.of_array(memoryview(raw))


def test_the_driver_has_the_function() -> None:
    assert block._joined is not block._join


@given(st.lists(documents.field_lists.map(lambda fields: document(*fields)), max_size=12))
def test_a_page_a_block_and_their_documents_agree(raws: list[bytes]) -> None:
    raw = array_of(raws)
    page = Page(b"x" + raw + b"y", 1, None, None)
    made = page.block()
    assert made == Block(b"".join(raws), len(raws)) == Block.of(raws)
    assert made.documents() == array_documents(raw, 0) == raws
    if raws:
        assert made.first() == raws[0]
        assert made.without_first() == Block.of(raws[1:])
        assert made.last() == raws[-1]


def test_a_value_that_looks_like_the_last_document_is_not_mistaken_for_it() -> None:
    inner = bson.encode({"_id": MaxKey()})
    # The false document lacks its terminator, but the terminator of the last document follows and completes it.
    lookalike = bson.encode({"_id": 1, "b": b"\x031\0" + inner[:-1]})
    raws = [bson.encode({"_id": 0}), lookalike]
    page = Page(b"x" + array_of(raws) + b"y", 1, None, None)
    assert page.block().last() == lookalike


def test_a_document_without_a_length_is_malformed() -> None:
    with pytest.raises(MalformedBson):
        Block(bytes(8), 1).documents()
