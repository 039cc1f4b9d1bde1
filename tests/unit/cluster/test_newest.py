"""A newly elected primary does not know the cluster time yet: this is a temporary error."""

from __future__ import annotations

import pytest
from bson import Timestamp
from pymongo.errors import NotPrimaryError

from verifier.cluster.failures import temporary
from verifier.cluster.newest import newest_time


def test_the_time_of_the_reply_is_returned() -> None:
    time = Timestamp(1700000000, 5)
    assert newest_time(lambda command: {"n": 0, "operationTime": time}, "runs") == time


def test_a_reply_without_a_time_is_a_temporary_error() -> None:
    with pytest.raises(NotPrimaryError) as raised:
        newest_time(lambda command: {"n": 0}, "runs")
    assert temporary(raised.value) is not None
