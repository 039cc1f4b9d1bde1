"""Tests how long reads of the saved state of a check wait, and whether its mismatches are still saved."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import ConfigurationError

from verifier.cluster import connect
from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.cluster.times import Position
from verifier.compare.check_reader import CheckReader
from verifier.compare.record import CheckRecord, Request, SideRecord
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken


class _Client(dict[str, Any]):
    """A client with these databases, whose sessions have no effect."""

    def start_session(self, causal_consistency: bool) -> AbstractContextManager[None]:
        return nullcontext()


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


def test_a_connection_that_accepts_no_session_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver refuses sessions on a connection from a time when the member was not a primary or secondary."""
    answers = [ConfigurationError("Sessions are not supported"), {"generation": 0, "started": 5.0}]

    def find_one(*_: object, **__: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    replaced: list[object] = []
    monkeypatch.setattr(connect, "_discard_connections", replaced.append)
    client: Any = _Client({"state": {"check": SimpleNamespace(find_one=find_one)}})
    assert CheckReader(client, "state", StopToken())._is_kept(0, 5.0)
    assert replaced == [client]


@pytest.mark.parametrize(
    "saved, kept",
    [
        ({"generation": 1, "started": 5.0}, True),
        ({"generation": 2, "started": 5.0}, False),
        ({"generation": 0, "started": 6.0}, False),
        (None, False),
    ],
)
def test_mismatches_are_kept_until_later_generations_or_a_new_check(
    saved: dict[str, Any] | None, kept: bool
) -> None:
    check = SimpleNamespace(find_one=lambda *_, **__: saved)
    client: Any = _Client({"state": {"check": check}})
    reader = CheckReader(client, "state", StopToken(), patience=0.1)
    assert reader._is_kept(0, 5.0) is kept
