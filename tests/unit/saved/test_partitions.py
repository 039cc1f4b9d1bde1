"""A saved partition is loaded unchanged. Its fields for dashboards are saved, and never read.

Several partitions are claimed at once if they are whole, small collections.
"""

from __future__ import annotations

from dataclasses import replace

import bson
import pytest
from bson import Int64

from syncsvc.saved import partitions
from syncsvc.saved.partitions import Partition, _document, _partition, _together
from syncsvc.saved.registry import CopyStatus
from syncsvc.source.natural_scan import ResumePoint
from tests.unit.documents import key
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import LAST, Range

UUID = bytes(range(16))
# A value that the driver would decode to a different type.
SYMBOL = key(0x0E, b"\x04\0\0\0sym\0")
PARTITIONS = [
    Partition(UUID, 0),
    Partition(UUID, 9_999, Range(None, SYMBOL), total=2**40),
    Partition(UUID, 3, Range(SYMBOL, LAST), 7, CopyStatus.COPYING, 2**33, 2**32, "shard0", SYMBOL),
    Partition(UUID, 3, Range(SYMBOL), status=CopyStatus.DONE, instance="shard0"),
    Partition(UUID, 0, resume_point=ResumePoint({"$recordId": Int64(9)}, "65aa")),
    Partition(UUID, 0, resume_point=ResumePoint({"$recordId": b"\0\1clustered"}, "65aa")),
]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_partition_is_saved_and_loaded_unchanged(partition: Partition) -> None:
    assert _partition(bson.decode(bson.encode(_document(partition)))) == partition


@pytest.mark.parametrize(
    "partition, shown",
    [
        (Partition(UUID, 0, total=10), ("not started", 0, 10)),
        (Partition(UUID, 0, total=10, status=CopyStatus.COPYING, copied=4), ("in progress", 4, 10)),
        (
            Partition(UUID, 0, total=10, status=CopyStatus.COPYING, copied=12),
            ("in progress", 12, 12),
        ),
        (Partition(UUID, 0, total=10, status=CopyStatus.DONE, copied=4), ("done", 4, 4)),
    ],
)
def test_dashboards_see_how_much_is_copied(
    partition: Partition, shown: tuple[str, int, int]
) -> None:
    document = _document(partition)
    names = ("partitionPhase", "copiedByteCount", "totalByteCount")
    assert tuple(document[name] for name in names) == shown
    # A partition that is saved again does not know its namespace, and must not overwrite the saved namespace.
    assert "namespace" not in document
    planned = _document(replace(partition, namespace=Namespace("shop", "orders.old")))
    assert planned["namespace"] == {"db": "shop", "coll": "orders.old"}


def test_the_fields_for_dashboards_are_never_read() -> None:
    document = _document(Partition(UUID, 0, total=10, namespace=Namespace("a", "b")))
    wrong = {"namespace": 7, "partitionPhase": "done", "copiedByteCount": -1, "totalByteCount": "x"}
    assert _partition({**document, **wrong}) == Partition(UUID, 0, total=10)


WHOLE, RANGE = Range(), Range(None, SYMBOL)
LARGE = partitions._MOST_BYTES


@pytest.mark.parametrize(
    "waiting, claimed",
    [
        ([], 0),
        ([(RANGE, 1), (RANGE, 1)], 1),
        ([(RANGE, 1), (WHOLE, 1)], 1),
        ([(WHOLE, 1), (RANGE, 1)], 1),
        ([(WHOLE, 1), (WHOLE, 1), (RANGE, 1), (WHOLE, 1)], 2),
        ([(WHOLE, LARGE + 1), (WHOLE, 1)], 1),
        ([(WHOLE, LARGE - 1), (WHOLE, 1), (WHOLE, 1)], 2),
    ],
)
def test_ranges_are_claimed_alone(waiting: list[tuple[Range, int]], claimed: int) -> None:
    documents = [_document(Partition(UUID, 0, part, total)) for part, total in waiting]
    assert _together(documents) == documents[:claimed]
