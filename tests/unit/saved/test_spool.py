"""The events read from a row of the event spool must be the saved events; otherwise, the row is refused."""

from __future__ import annotations

import zlib

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.saved.spool import Row, _is_whole, checksum, joint_of, pack, unpack
from verifier.cluster.times import Position

SINCE = Position({"_data": "826500"}, Timestamp(1, 1))
END = Position({"_data": "826501"}, Timestamp(2, 1))


@given(st.lists(st.binary(max_size=50)))
def test_events_are_unpacked_as_they_were(bodies: list[bytes]) -> None:
    events = [bson.encode({"body": body}) for body in bodies]
    assert [bytes(each) for each in unpack(pack(events))] == events


DATA = pack([bson.encode({"a": 1})])
WHOLE = Row(
    7, SINCE.time, joint_of(SINCE), END, 1, 9, 1, checksum(7, joint_of(SINCE), END, 1, DATA)
)


def test_a_row_is_whole() -> None:
    assert _is_whole(WHOLE, DATA)


@pytest.mark.parametrize(
    "row, data",
    [
        (WHOLE, b""),
        (WHOLE, DATA[:-1]),
        (WHOLE, DATA + b"\0"),
        (WHOLE, bytes([DATA[0] ^ 1]) + DATA[1:]),
        (WHOLE._replace(number=8), DATA),
        (WHOLE._replace(joint=joint_of(END)), DATA),
        (WHOLE._replace(end=SINCE), DATA),
        (WHOLE._replace(events=2), DATA),
        (WHOLE._replace(checksum=zlib.crc32(DATA)), DATA),
    ],
)
def test_any_damage_is_found(row: Row, data: bytes) -> None:
    assert not _is_whole(row, data)
