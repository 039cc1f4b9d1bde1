"""What the driver's errors mean: which are transient, which have a name. Decided by label and code, never by text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import (
    ConnectionFailure,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)

from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError

NAMESPACE_NOT_FOUND = 26
INDEX_NOT_FOUND = 27
NAMESPACE_EXISTS = 48
UNAUTHORIZED = 13
INVALID_OPTIONS = 72
INDEX_OPTIONS_CONFLICT = 85
INDEX_KEY_SPECS_CONFLICT = 86
QUERY_PLAN_KILLED = 175
BSON_OBJECT_TOO_LARGE = 10334
KEY_NOT_FOUND = 211
COMMAND_NOT_FOUND = 59
COMMAND_NOT_SUPPORTED_ON_VIEW = 166
CHANGE_STREAM_FATAL = 280
CHANGE_STREAM_HISTORY_LOST = 286
CAPPED_POSITION_LOST = 136
COLLECTION_UUID_MISMATCH = 361
DUPLICATE_KEY = 11000
CURSOR_NOT_FOUND = 43
MAX_TIME_EXPIRED = 50
NO_MORE_SAMPLES = 28799
USER_WRITES_BLOCKED = 371
# A snapshot is too old, or not to be had yet after a change of definitions; the next one will do.
SNAPSHOT_LOST = frozenset({239, 246})
UNKNOWN_STAGE = 40324

CLUSTER_UNREACHABLE = ErrorKind(
    "ClusterUnreachable",
    409,
    "A cluster does not answer.",
    "Check that its servers run and have a primary, and that the connection string is right: the addresses, "
    "and tls and tlsCAFile where the servers demand TLS. "
    "A run that stopped for this goes on when the process is started again.",
)
NOT_AUTHORIZED = ErrorKind(
    "NotAuthorized",
    409,
    "The user of a connection string lacks a privilege, or its credentials are refused.",
    "Check user, password and authSource in the connection string, and grant its user the roles that the documentation "
    "lists. "
    "A run that stopped for this goes on when the process is started again.",
)
OPLOG_WINDOW_EXCEEDED = ErrorKind(
    "OplogWindowExceeded",
    409,
    "The oplog no longer holds the point from which change events must be read.",
    "Enlarge the oplog (replSetResizeOplog); then begin anew: a sync with a clean destination, a check with --clean.",
)

EVENT_TOO_LARGE = ErrorKind(
    "EventTooLarge",
    409,
    "A server cannot send a change event, because even without its contents it is larger than 16 MB.",
    "Write no document with an _id of more than 5 MB meanwhile; "
    "then begin anew: a sync with a clean destination, a check with --clean.",
)

# Codes with which a server says "not now": elections, shutdowns, interrupted operations, network trouble between
# members. From the driver specifications (retryable writes, retryable reads, change streams).
_TRANSIENT_CODES = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        63,  # StaleShardVersion
        64,  # WriteConcernFailed
        79,  # UnknownReplWriteConcern, while a set reconfigures
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        107,  # LockFailed: a note to an oplog while a user write block waits for the transactions that are open
        112,  # WriteConflict
        133,  # FailedToSatisfyReadPreference
        134,  # ReadConcernMajorityNotAvailableYet
        150,  # StaleEpoch
        189,  # PrimarySteppedDown
        234,  # RetryChangeStream
        262,  # ExceededTimeLimit
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11601,  # Interrupted, by an operator's killOp
        11602,  # InterruptedDueToReplStateChange
        13388,  # StaleConfig
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
    }
)
_TRANSIENT_LABELS = (
    "RetryableWriteError",
    "TransientTransactionError",
    "ResumableChangeStreamError",
)


def code_of(error: BaseException) -> int | None:
    """The server's code of an error that carries one."""
    return error.code if isinstance(error, OperationFailure) else None


def text_of(error: BaseException) -> str:
    """What a driver's error says to people: without the whole reply, and without the topology."""
    if isinstance(error, OperationFailure) and error.details:
        return f"{error.details.get('errmsg', error)} (code {error.code})"
    return str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]


def actual_collection(error: OperationFailure) -> str | None:
    """The name that a collection has by now, from a CollectionUUIDMismatch; None when it was dropped."""
    name = (error.details or {}).get("actualCollection")
    return None if name is None else str(name)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later with nothing changed."""
    if isinstance(error, ConnectionFailure | WriteConcernError):
        return True
    if not isinstance(error, PyMongoError):
        return False
    if any(error.has_error_label(label) for label in _TRANSIENT_LABELS):
        return True
    return code_of(error) in _TRANSIENT_CODES


def is_history_lost(error: BaseException) -> bool:
    """Whether the oplog no longer holds the point asked for."""
    return code_of(error) in (CHANGE_STREAM_HISTORY_LOST, CAPPED_POSITION_LOST)


def is_cursor_lost(error: BaseException) -> bool:
    """Whether the cursor is gone and must be opened again: forgotten by the server, or its collection was dropped."""
    return code_of(error) in (CURSOR_NOT_FOUND, QUERY_PLAN_KILLED)


def named_kind(error: BaseException) -> ErrorKind | None:
    """The kind under which a driver's error is reported; None where it has no name of its own."""
    if is_history_lost(error):
        return OPLOG_WINDOW_EXCEEDED
    if code_of(error) == BSON_OBJECT_TOO_LARGE:
        return EVENT_TOO_LARGE
    if code_of(error) in (UNAUTHORIZED, 18):
        return NOT_AUTHORIZED
    return CLUSTER_UNREACHABLE if is_transient(error) else None


@contextmanager
def named_errors() -> Iterator[None]:
    """Raises the driver's errors that have a name as OperationError."""
    try:
        yield
    except PyMongoError as error:
        kind = named_kind(error)
        if kind is None:
            raise
        raise OperationError(kind, f"{text_of(error)}.") from error


def named(error: BaseException) -> BaseException:
    """The error itself, the first of a group of them, or the named one that a driver's error stands for."""
    if isinstance(error, BaseExceptionGroup):
        return named(error.exceptions[0])
    if not isinstance(error, PyMongoError):
        return error
    # What a server says of a fault of ours may hold a whole reply: only its message is told.
    return OperationError(named_kind(error) or INTERNAL_ERROR, f"{text_of(error)}.")
