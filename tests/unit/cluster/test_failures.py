"""Driver errors are classified by their type, labels and code, and their texts contain only the reason."""

from __future__ import annotations

import pytest
from pymongo import errors
from pymongo.errors import OperationFailure, PyMongoError

from verifier.cluster import failures
from verifier.cluster.failures import (
    CLUSTER_UNREACHABLE,
    NOT_AUTHORIZED,
    OPLOG_WINDOW_EXCEEDED,
    code_of,
    is_cursor_lost,
    is_history_lost,
    is_transient,
    named_kind,
)
from verifier.runtime.errors import ErrorKind

# The codes in the driver specifications for retryable reads, retryable writes and resumable change streams.
SPECIFIED_CODES = {
    *(6, 7, 63, 89, 91, 133, 134, 150, 189, 234, 262, 9001),
    *(10107, 11600, 11602, 13388, 13435, 13436),
}


def failure(code: int, *labels: str) -> OperationFailure:
    return OperationFailure("x", code, {"errorLabels": list(labels)})


def labelled(label: str) -> PyMongoError:
    error = PyMongoError("x")
    error._add_error_label(label)
    return error


TRANSIENT = [
    errors.AutoReconnect("x"),
    errors.NetworkTimeout("x"),
    errors.ServerSelectionTimeoutError("x"),
    errors.NotPrimaryError("x"),
    errors.ConnectionFailure("x"),
    errors.WaitQueueTimeoutError("x"),
    errors.WriteConcernError("x", 64),
    errors.WTimeoutError("x", 64),
    errors.WriteConcernError("x", 100),
    failure(107),
    failure(112),
    failure(1, "RetryableWriteError"),
    failure(1, "TransientTransactionError"),
    failure(1, "ResumableChangeStreamError"),
    labelled("RetryableWriteError"),
    # Servers of 8.0 and newer that reject work, or interrupt it during a change of featureCompatibilityVersion.
    failure(462),
    failure(10045600),
    failure(1, "SystemOverloadedError"),
    *map(failure, sorted(SPECIFIED_CODES)),
]
LASTING = [
    failure(11000),
    failure(13),
    failure(18),
    failure(26),
    failure(43),
    failure(59),
    failure(121),
    failure(136),
    failure(211),
    failure(286, "NonResumableChangeStreamError"),
    failure(361),
    failure(371),
    errors.InvalidURI("x"),
    errors.ConfigurationError("x"),
    errors.DocumentTooLarge("x"),
    errors.InvalidOperation("x"),
    PyMongoError("x"),
    ValueError("x"),
    OSError("x"),
    KeyboardInterrupt("x"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_temporary_errors_are_transient(error: BaseException) -> None:
    assert is_transient(error)
    assert named_kind(error) is CLUSTER_UNREACHABLE


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_permanent_errors_are_not_transient(error: BaseException) -> None:
    assert not is_transient(error)
    assert named_kind(error) is not CLUSTER_UNREACHABLE


@pytest.mark.parametrize("code", [11, 26, 27, 31, 48, 85, 86, 166, 361])
def test_an_answer_that_callers_expect_is_not_retried(code: int) -> None:
    """For example, the answer to the second attempt of a drop, if the reply to the first one was lost."""
    assert failures.temporary(failure(code)) is None


@pytest.mark.parametrize("code", [286, 136])
def test_lost_history_has_an_error_name(code: int) -> None:
    assert is_history_lost(failure(code))
    assert named_kind(failure(code)) is OPLOG_WINDOW_EXCEEDED


@pytest.mark.parametrize("code", [13, 18])
def test_a_refused_user_has_an_error_name(code: int) -> None:
    assert named_kind(failure(code)) is NOT_AUTHORIZED


@pytest.mark.parametrize(
    "error", [failure(26), failure(10334), failure(11000), ValueError("x"), PyMongoError("x")]
)
def test_unlisted_errors_have_no_error_name(error: BaseException) -> None:
    assert named_kind(error) is None


def test_a_lost_cursor_is_known_by_its_code() -> None:
    assert is_cursor_lost(failure(43))
    assert not is_cursor_lost(failure(44)) and not is_cursor_lost(ValueError("43"))


def test_only_errors_of_a_server_have_a_code() -> None:
    assert code_of(failure(7)) == 7
    assert code_of(errors.AutoReconnect("7")) is None and code_of(ValueError(7)) is None


@pytest.mark.parametrize("kind", [CLUSTER_UNREACHABLE, NOT_AUTHORIZED, OPLOG_WINDOW_EXCEEDED])
def test_named_kinds_have_a_remedy(kind: ErrorKind) -> None:
    assert kind.status == 409 and kind.remedy.endswith(".")


def test_the_codes_are_those_of_the_server() -> None:
    assert (failures.NAMESPACE_NOT_FOUND, failures.NAMESPACE_EXISTS) == (26, 48)
    assert (failures.INDEX_NOT_FOUND, failures.INDEX_OPTIONS_CONFLICT) == (27, 85)
    assert (failures.INDEX_KEY_SPECS_CONFLICT, failures.DUPLICATE_KEY) == (86, 11000)
    assert (failures.QUERY_PLAN_KILLED, failures.KEY_NOT_FOUND) == (175, 211)
    assert failures.COLLECTION_UUID_MISMATCH == 361


@pytest.mark.parametrize(
    "error, text",
    [
        (
            OperationFailure("full", 26, {"errmsg": "ns not found", "ok": 0}),
            "ns not found (code 26)",
        ),
        (OperationFailure("full"), "full"),
        (
            errors.AutoReconnect("h:1: closed (configured timeouts: socketTimeoutMS: 1)"),
            "h:1: closed",
        ),
        (
            errors.ServerSelectionTimeoutError(
                "h:1: refused, Timeout: 1s, Topology Description: <>"
            ),
            "h:1: refused",
        ),
        (
            errors.ExecutionTimeout(
                "late",
                50,
                {"errmsg": "late (configured timeouts: timeoutMS: 1.0ms)", "code": 50},
            ),
            "late (code 50)",
        ),
        (ValueError("plain"), "plain"),
    ],
)
def test_the_text_of_an_error_has_only_the_reason(error: BaseException, text: str) -> None:
    assert failures.text_of(error).startswith(text)
    assert "Topology" not in failures.text_of(error) and "'ok'" not in failures.text_of(error)
    assert "configured" not in failures.text_of(error)
