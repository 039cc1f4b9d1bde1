"""Tests which state is saved in the run record if the cluster does not answer, or saves a change without an answer.

Also tests that a save is repeated if its answer has no cluster time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Timestamp
from pymongo.errors import AutoReconnect

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.journal import Entry, Journal, Kind, Sender
from syncsvc.saved.run import Failure
from syncsvc.saved.run_store import RunStore
from syncsvc.state import State
from tests.unit.syncsvc.records import run_record
from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

RESET = Entry(Kind.COMMAND, 1700000000.0, "reset", Sender(None, None))
TIME = Timestamp(1700000000, 1)
FAILURE = Failure("VerificationFailed", "The clusters differ.")


class Server(ClusterWriter):
    """A cluster that holds one run record.

    Each element of `answers` is about one save: True if the cluster saves the record and answers, False if it saves the
    record but the answer is lost, and None if it does neither. After these saves, it answers each save. `timeless` is
    the number of answers without a cluster time.
    """

    def __init__(self, *answers: bool | None, timeless: int = 0) -> None:
        self._stop = StopToken()
        self._timeless = timeless
        self.saved: dict[str, Any] = {"owner": "9f8e", "beat": 0, "state": "PAUSED"}
        self._answers = list(answers)

    def run(
        self, database: str, command: dict[str, Any], retried: bool = True, **options: Any
    ) -> dict[str, Any]:
        (update,) = command["updates"]
        answer = self._answers.pop(0) if self._answers else True
        if answer is None:
            raise AutoReconnect("connection refused")
        held = {name: self.saved[name] for name in ("owner", "beat")}
        matched = held in update["q"]["$or"]
        if matched:
            self.saved = update["u"]
        if not answer:
            raise AutoReconnect("connection closed")
        self._timeless -= 1
        known = {} if self._timeless >= 0 else {"operationTime": TIME}
        return {"n": int(matched), **known}


def store_at(server: Server, state: State = State.PAUSED) -> RunStore:
    return RunStore(METADATA_DATABASE, server, run_record(state=state))


def unchanged(journal: Journal) -> Journal:
    return journal


@pytest.mark.parametrize("answer", [None, False])
def test_a_command_during_an_outage_is_never_saved(answer: bool | None) -> None:
    server = Server(answer)
    with pytest.raises(AutoReconnect):
        store_at(server).update(RESET, state=State.RESETTING)
    assert server.saved["state"] == "PAUSED"


def test_a_command_is_withdrawn_if_it_was_refused_although_it_was_saved() -> None:
    server = Server(True, False)
    store = store_at(server)
    with pytest.raises(OperationError, match="Do not restart this process before that") as raised:
        store.update(RESET, state=State.RESETTING)
    assert raised.value.kind is CLUSTER_UNREACHABLE
    assert server.saved["state"] == "RESETTING"
    assert store.record.state is State.PAUSED
    store.revise(unchanged)
    assert server.saved["state"] == "PAUSED"


@pytest.mark.parametrize("answer", [None, False])
def test_the_next_save_saves_a_failure_whose_save_was_not_answered(answer: bool | None) -> None:
    server = Server(answer)
    store = store_at(server, State.RUNNING)
    store.show(state=State.FAILED, failure=replace(FAILURE, saved_state=State.RUNNING))
    store.defer(state=State.FAILED, failure=FAILURE)
    with pytest.raises(AutoReconnect):
        store.update()
    store.revise(unchanged)
    assert server.saved["state"] == "FAILED"
    assert (store.record.state, store.record.failure) == (State.FAILED, FAILURE)


def test_a_refused_reset_of_a_failed_sync_leaves_it_failed() -> None:
    server = Server(True, False)
    store = store_at(server, State.RUNNING)
    store.defer(state=State.FAILED, failure=FAILURE)
    with pytest.raises(OperationError):
        store.update(RESET, state=State.RESETTING, failure=None)
    store.revise(unchanged)
    assert server.saved["state"] == "FAILED"
    assert server.saved["failure"]["name"] == FAILURE.name


def test_a_later_command_replaces_a_failure() -> None:
    server = Server()
    store = store_at(server, State.RUNNING)
    store.defer(state=State.FAILED, failure=FAILURE)
    store.update(RESET, state=State.RESETTING, failure=None)
    store.update()
    assert (server.saved["state"], server.saved["failure"]) == ("RESETTING", None)


def test_a_save_is_repeated_until_its_cluster_time_is_known() -> None:
    """Let a new primary answer without a cluster time: reads after the save must nevertheless be as new as the save."""
    server = Server(timeless=1)
    store = store_at(server)
    store.update(state=State.RUNNING)
    assert (server.saved["state"], store.saved_time) == ("RUNNING", TIME)
