"""Tests into which ranges a collection is divided, and how many documents are sampled for their bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.documents import double, int32, key, string
from verifier.cluster import ranges
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Range, range_bytes, split
from verifier.cluster.sampling import largest_sample
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")
MIB = 1 << 20


@pytest.mark.parametrize(
    "count, size, samples, expected",
    [
        (10**10, 10**13, 5_000, 2_500),
        (10**9, 200 * 400 * MIB, 1_600, 200),
        (10**9, 1_000 * 400 * MIB, 5_000, 1_000),
    ],
)
def test_the_samples_of_one_call_are_limited(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int, samples: int, expected: int
) -> None:
    wanted = []

    def sample(client: Any, name: Namespace, number: int, *_: Any) -> list[bytes]:
        wanted.append(number)
        return [key(0x10, int32(each)) for each in range(number)]

    monkeypatch.setattr(ranges, "_sample", sample)
    client: Any = None
    found = split(client, NAME, count, size, 400 * MIB, StopToken())
    assert (wanted, len(found)) == ([samples], expected)
    assert found[0].lower is None and found[-1].upper is None
    assert all(one.upper == other.lower is not None for one, other in zip(found, found[1:]))


def test_equal_bounds_of_different_types_are_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same, other = key(0x10, int32(1)), key(0x01, double(1)), key(0x02, string(b"a"))
    monkeypatch.setattr(ranges, "_sample", lambda *_: [one, one, same, other])
    client: Any = None
    found = split(client, NAME, 100, 4, 1, StopToken())
    (bound,) = {each.upper for each in found} - {None, other}
    assert found == [Range(None, bound), Range(bound, other), Range(other, None)]


@pytest.mark.parametrize(
    "size, threads, most, expected",
    [
        (0, 4, 400 * MIB, 8 * MIB),
        (1_000 * MIB, 4, 400 * MIB, 125 * MIB),
        (10**13, 4, 400 * MIB, 400 * MIB),
        (10 * MIB, 4, 5 * MIB, 5 * MIB),
    ],
)
def test_ranges_occupy_all_threads_unless_they_would_be_too_small(
    size: int, threads: int, most: int, expected: int
) -> None:
    assert range_bytes(size, threads, most) == expected


@pytest.mark.parametrize(
    "documents, shards, expected", [(0, 1, 1), (10, 1, 1), (40_000, 1, 1_600), (40_000, 4, 400)]
)
def test_a_sample_is_small(documents: int, shards: int, expected: int) -> None:
    assert largest_sample(documents, shards) == expected
