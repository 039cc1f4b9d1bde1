"""Tests how long the saved state of a check waits for a cluster that does not answer."""

from __future__ import annotations

from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient

from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.cluster.times import Position
from verifier.compare.check_reader import CheckReader
from verifier.compare.record import CheckRecord, Request, SideRecord
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken


def test_the_numbers_of_mismatches_are_not_awaited_forever() -> None:
    """The numbers of mismatches must be read with a time limit, in case the cluster stops answering."""
    side = SideRecord(Position({}, Timestamp(1, 1)))
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False) as client:
        reader = CheckReader(client, "state", StopToken(), patience=0.1)
        reader._record = CheckRecord("", ("", ""), Request(), 0.0, side, side)
        # The outer limit ends the test if the reader sets no limit itself.
        with impatient(0.0), pytest.raises(OperationError) as raised:
            reader.mismatch_counts()
        assert raised.value.kind is CLUSTER_UNREACHABLE
