"""Cluster times are extracted from resume tokens, and compared with each other."""

from __future__ import annotations

import pytest
from bson import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from verifier.cluster.times import (
    Position,
    passed_time,
    position_after,
    position_at,
    seconds_between,
    token_time,
)

# The first two are tokens of a real server: of an event, and of a later high-water mark, which is no event.
TOKENS = {
    "826555F2C1000000022B022C0100296E5A1004": Timestamp(0x6555F2C1, 2),
    "82655600FF0000000A2B0229296E04": Timestamp(0x655600FF, 10),
    "8200000000000000002B": Timestamp(0, 0),
    "82FFFFFFFFFFFFFFFF2B": Timestamp(2**32 - 1, 2**32 - 1),
}
unsigned = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("data", TOKENS)
def test_the_cluster_time_of_a_token_is_read(data: str) -> None:
    assert token_time({"_data": data}) == TOKENS[data]


def test_events_before_a_position_are_not_after_its_passed_time() -> None:
    event, mark, least, _ = ({"_data": each} for each in TOKENS)
    assert passed_time(position_at(event)) == Timestamp(0x6555F2C1, 2)
    assert passed_time(position_at(mark)) == Timestamp(0x655600FF, 9)
    assert passed_time(position_at(least)) == Timestamp(0, 0)
    assert passed_time(position_after(Timestamp(5, 6))) == Timestamp(5, 6)


def test_a_position_is_past_earlier_times_only() -> None:
    position = position_after(Timestamp(5, 6))
    assert position.is_past(Timestamp(5, 5)) and not position.is_past(Timestamp(5, 6))


@given(unsigned, unsigned)
def test_every_time_is_read(seconds: int, increment: int) -> None:
    token = {"_data": f"82{seconds:08X}{increment:08X}2B04"}
    assert position_at(token) == Position(token, Timestamp(seconds, increment))


@pytest.mark.parametrize("token", [{}, {"_data": "82"}, {"_data": "82XYZXYZXYZXYZXYZXYZ"}])
def test_an_invalid_token_is_an_error(token: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        token_time(token)


@pytest.mark.parametrize(
    "earlier, later, seconds",
    [((10, 1), (10, 9), 0), ((10, 9), (12, 1), 2), ((12, 1), (10, 1), 0)],
)
def test_seconds_between_are_never_negative(
    earlier: tuple[int, int], later: tuple[int, int], seconds: int
) -> None:
    assert seconds_between(Timestamp(*earlier), Timestamp(*later)) == seconds
