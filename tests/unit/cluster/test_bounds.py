"""Tests that a command waits for a save by another thread no longer than the command's own time limit."""

from __future__ import annotations

import threading

import pytest

from verifier.cluster.bounds import one_save
from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient


def test_a_patient_caller_gets_the_lock() -> None:
    lock = threading.Lock()
    with one_save(lock, "the record"):
        assert lock.locked()
    assert not lock.locked()


def test_an_impatient_caller_gets_an_error_and_the_lock_stays_taken() -> None:
    lock = threading.Lock()
    with lock:
        with impatient(0.05), pytest.raises(
            OperationError, match="still saving the record,"
        ) as raised:
            with one_save(lock, "the record"):
                pytest.fail("the lock is held by another thread")
        assert raised.value.kind is CLUSTER_UNREACHABLE
        assert lock.locked()
