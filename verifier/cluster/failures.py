"""Classifies the driver's errors: whether to retry the call, and under which error name to report the error.

The class, the labels and the code of an error decide this, never the server's message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymongo.errors import (
    ConnectionFailure,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
)

from verifier.cluster.calls import Call, newest
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError
from verifier.runtime.retry import Temporary

NAMESPACE_NOT_FOUND = 26
INDEX_NOT_FOUND = 27
NAMESPACE_EXISTS = 48
# Among others, the answer to a collMod if another collMod has changed the same index meanwhile.
COMMAND_FAILED = 125
TIME_LIMIT_EXCEEDED = 50
UNAUTHORIZED = 13
ILLEGAL_OPERATION = 20
LOCK_TIMEOUT = 24
INVALID_OPTIONS = 72
INDEX_OPTIONS_CONFLICT = 85
INDEX_KEY_SPECS_CONFLICT = 86
QUERY_PLAN_KILLED = 175
BSON_OBJECT_TOO_LARGE = 10334
# `$changeStreamSplitLargeEvent` cannot divide an event: with its resume token, a single field is too large.
EVENT_NOT_SPLITTABLE = 7182500
KEY_NOT_FOUND = 211
TRANSACTION_TOO_OLD = 225
COMMAND_NOT_FOUND = 59
COMMAND_NOT_SUPPORTED_ON_VIEW = 166
CHANGE_STREAM_FATAL = 280
CHANGE_STREAM_HISTORY_LOST = 286
INVALID_RESUME_TOKEN = 260
CAPPED_POSITION_LOST = 136
COLLECTION_UUID_MISMATCH = 361
# The codes with which a server refuses a command for a dropped collection: by its name, and by its UUID.
DROPPED = (NAMESPACE_NOT_FOUND, COLLECTION_UUID_MISMATCH)
DUPLICATE_KEY = 11000
CURSOR_NOT_FOUND = 43
_CURSOR_KILLED = 237
NO_MORE_SAMPLES = 28799
USER_WRITES_BLOCKED = 371
UNKNOWN_STAGE = 40324
QUERY_FEATURE_NOT_ALLOWED = 224

UNEXPECTED_SERVER_ERROR = ErrorKind(
    "UnexpectedServerError",
    409,
    "A server keeps failing a command with an error that this program does not know.",
    "Find the cause in the message or the log of the server, and remove the cause.",
)
CLUSTER_UNREACHABLE = ErrorKind(
    "ClusterUnreachable",
    409,
    "A cluster does not answer, or cannot run a command at the moment.",
    "Check that the servers of the cluster run and have a primary and a majority, and that the connection string is "
    "right: the addresses, replicaSet, and, if the servers require TLS, tls and tlsCAFile. If the message names "
    "another cause, such as a full disk, remove it.",
)
NOT_AUTHORIZED = ErrorKind(
    "NotAuthorized",
    409,
    "The user of a connection string lacks a privilege, or its credentials are refused.",
    "If the message names privileges, a role or an action, grant them to the user: see docs/reference/roles. "
    "Otherwise, check user, password and authSource in the connection string.",
)
# The errors that any call to a cluster can raise. They say nothing about the data.
CLUSTER_ERRORS = (CLUSTER_UNREACHABLE, NOT_AUTHORIZED, UNEXPECTED_SERVER_ERROR)
OPLOG_WINDOW_EXCEEDED = ErrorKind(
    "OplogWindowExceeded",
    409,
    "The oplog no longer holds the point from which change events must be read.",
    "Enlarge the oplog on each member of the replica set or shard (replSetResizeOplog).",
)

EVENT_TOO_LARGE = ErrorKind(
    "EventTooLarge",
    409,
    "A server cannot send a change event, because the event is larger than 16 MB even without its contents.",
    "Do not write documents with an _id of more than 2 MB during a sync or check.",
)

# Codes with which a server says "not now": elections, shutdowns, interrupted operations, overload, a full disk, trouble
# between members. The sources are the driver specifications (retryable writes, retryable reads, change streams), the
# server's own retry loops, and fault experiments.
_TRANSIENT_CODES = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        24,  # LockTimeout
        46,  # LockBusy
        50,  # MaxTimeMSExpired
        63,  # StaleShardVersion
        64,  # WriteConcernFailed
        79,  # UnknownReplWriteConcern, while a set reconfigures
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        100,  # UnsatisfiableWriteConcern, while members are missing
        107,  # LockFailed: an oplog note while a user write block waits for open transactions
        112,  # WriteConflict
        117,  # ConflictingOperationInProgress
        133,  # FailedToSatisfyReadPreference
        134,  # ReadConcernMajorityNotAvailableYet
        146,  # ExceededMemoryLimit
        150,  # StaleEpoch
        189,  # PrimarySteppedDown
        202,  # NetworkInterfaceExceededTimeLimit
        216,  # ElectionInProgress
        234,  # RetryChangeStream
        239,  # SnapshotTooOld
        246,  # SnapshotUnavailable
        249,  # StaleDbVersion
        262,  # ExceededTimeLimit
        276,  # IndexBuildAborted, by a member that stepped down
        279,  # ClientDisconnect
        290,  # TransactionExceededLifetimeLimitSeconds
        292,  # QueryExceededMemoryLimitNoDiskUseAllowed
        314,  # ObjectIsBusy
        317,  # a storage engine that is busy, like 314
        355,  # a read that was interrupted by a change of the storage
        365,  # TemporarilyUnavailable, under cache pressure
        # Codes of servers of 7.0 and newer, taken from the table of codes in the server's source.
        402,  # ResourceExhausted
        406,  # MigrationBlockingOperationCoordinatorCleaningUp
        407,  # PooledConnectionAcquisitionExceededTimeLimit
        412,  # UpdatesStillPending
        433,  # AdmissionQueueOverflow
        449,  # RateLimitExceeded
        450,  # PooledConnectionAcquisitionRejected
        453,  # InterruptedDueToReshardingCriticalSection
        462,  # IngressRequestRateLimitExceeded
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11601,  # Interrupted, by an operator's killOp
        11602,  # InterruptedDueToReplStateChange
        12587,  # BackgroundOperationInProgressForNamespace
        13388,  # StaleConfig
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
        14031,  # OutOfDiskSpace
        91331,  # RetriableRemoteCommandFailure, of servers of 8.0 and newer
        10045600,  # InterruptedDueToFCVChange, of servers of 8.0 and newer
    }
)
# Codes that depend on the request or the data: the same call would fail again. Callers expect some of them.
_REFUSAL_CODES = frozenset(
    {
        *(
            2,
            4,
            5,
            9,
            10,
            11,  # UserNotFound
            14,
            15,
            16,
            17,
            20,
            21,
            22,
            26,
            27,
            28,
            31,  # RoleNotFound
            34,
            40,
            47,
            48,
            52,
            53,
            54,
            55,
            56,
        ),
        *(
            57,
            59,
            61,
            66,
            67,
            68,
            72,
            73,
            76,
            85,
            86,
            93,
            115,
            118,
            121,
            123,
            125,
            136,
            165,
            166,
            167,
        ),
        *(168, 169, 171, 197, 211, 225, 238, 241, 251, 256, 260, 263, 280, 286, 323, 359, 361, 371),
    }
)
# A code of this value or above identifies one check in the server's source, nearly always of the contents of the
# request or the document.
_FIRST_LOCATION = 10_000
# How long errors with other codes are retried, in seconds: an unexpected error is more often a temporary fault than a
# property of the data. `_LOCATION_PATIENCE` is for codes that identify a check in the server's source.
UNFORESEEN_PATIENCE = 60.0
_LOCATION_PATIENCE = 0.5

_AUTHENTICATION_CODES = (UNAUTHORIZED, 18)
_TRANSIENT_LABELS = (
    "RetryableWriteError",
    "TransientTransactionError",
    "ResumableChangeStreamError",
    # Servers of 8.2 and newer that reject work to protect themselves.
    "SystemOverloadedError",
)

# Matches the address with which the driver begins the text of a lost or failed connection.
_ADDRESS = re.compile(r"(\S+:\d+): ")

_CHECK_SERVERS = (
    "The failed call to the cluster is retried, and no data is lost. Check that the servers of the cluster run, that "
    "they have a primary and a majority, and that this host can reach them. If the error names another cause, such as "
    "a full disk, remove it."
)
_CHECK_USER = (
    "The failed call to the cluster is retried. If the user of the connection string lacks a role, grant the role. If "
    "the password was changed, replace it in the file with the connection string. If the connection string is not in a "
    "file, restart this process with the new one: the process continues where it stopped."
)
CHECK_LOG = (
    "The failed call to the cluster is retried for up to a minute. If the call still fails, the sync or check that "
    "needs it fails. The log of the server shows the cause."
)


def code_of(error: BaseException) -> int | None:
    """Return the server's code of an error; None if the error has no code."""
    return error.code if isinstance(error, OperationFailure) else None


def text_of(error: BaseException) -> str:
    """Return the readable text of a driver's error: the server's message and code, or else the driver's own text.

    The text contains neither the whole reply nor the topology description.
    """
    if isinstance(error, OperationFailure) and error.details:
        return f"{_without_timeouts(str(error.details.get('errmsg', error)))} (code {error.code})"
    return _without_timeouts(str(error))


def _without_timeouts(text: str) -> str:
    """Return the text of an error of the driver without the list of the driver's time limits."""
    return text.partition(" (configured timeouts")[0].partition(", Timeout:")[0]


def actual_collection(error: OperationFailure) -> str | None:
    """Return a collection's current name from a CollectionUUIDMismatch error; None if the collection was dropped."""
    name = (error.details or {}).get("actualCollection")
    return None if name is None else str(name)


def is_transient(error: BaseException) -> bool:
    """Return whether an error is known to be transient: the same call may succeed later without any change."""
    if isinstance(error, ConnectionFailure | WriteConcernError):
        return True
    if not isinstance(error, PyMongoError):
        return False
    if any(error.has_error_label(label) for label in _TRANSIENT_LABELS):
        return True
    return code_of(error) in _TRANSIENT_CODES


def refuse_unconfirmed(reply: Mapping[str, Any]) -> None:
    """Raise WriteConcernError, a transient error, if the write concern of a command was not fulfilled.

    `reply` is the reply to the command. The driver does not raise this error for commands that it sends unchanged.
    """
    error = reply.get("writeConcernError")
    if error is not None:
        raise WriteConcernError(error.get("errmsg", ""), error.get("code"), error)


def is_refusal(error: BaseException) -> bool:
    """Return whether a server refuses a command because of its contents or the data; a retry would be refused, too."""
    code = code_of(error)
    return code is not None and not is_transient(error) and is_refusal_code(code)


def is_refusal_code(code: int) -> bool:
    """Return whether a server's code means that the request or the data is refused; a retry would be refused, too."""
    return code not in _TRANSIENT_CODES and (code in _REFUSAL_CODES or code >= _FIRST_LOCATION)


def temporary(error: BaseException) -> Temporary | None:
    """Classify an error for `retry`: return why, and for how long, to retry the call; None if the error is final.

    Transient errors, missing privileges and refused credentials are retried without limit, because an operator can fix
    the cause without a restart. The same applies to index builds that take longer than the driver waits for an answer.
    Unexpected errors of a server are retried for a minute, but only for half a second if the code is 10000 or above,
    because then the request is the likely cause.
    """
    if is_transient(error):
        call = _failed_call(error)
        if isinstance(error, NetworkTimeout) and call is not None and call.builds_indexes:
            # The server continues to build or scan the index, and `ClusterWriter` waits for the end.
            return Temporary(call.unanswered, call.remedy, expected=True)
        return Temporary(with_command(error), _CHECK_SERVERS)
    code = code_of(error)
    if code is None or code in _REFUSAL_CODES:
        return None
    if code in _AUTHENTICATION_CODES:
        return Temporary(with_command(error), _CHECK_USER)
    patience = _LOCATION_PATIENCE if code >= _FIRST_LOCATION else UNFORESEEN_PATIENCE
    return Temporary(with_command(error), CHECK_LOG, patience)


def lost_cursor(error: BaseException) -> Temporary | None:
    """Classify an error for `retry` as `temporary` does, but also retry a lost cursor, which the read can reopen.

    A cursor is also lost when its collection is dropped or renamed. Reopening the cursor by the collection's UUID
    distinguishes these cases.
    """
    if is_cursor_lost(error):
        return Temporary(with_command(error), _CHECK_SERVERS)
    return temporary(error)


def only_lost_cursor(error: BaseException) -> Temporary | None:
    """Classify an error for `retry` in a read that an operator waits for: only a lost cursor is temporary."""
    return again(error) if is_cursor_lost(error) else None


def again(error: BaseException, at_once: bool = False) -> Temporary:
    """Return a Temporary that makes `retry` repeat the call without limit; without a pause if `at_once`.

    Use this only if the next attempt differs, for example by other options or a new cursor, so that `error` does not
    recur.
    """
    return Temporary(with_command(error), _CHECK_SERVERS, at_once=at_once)


def with_command(error: BaseException) -> str:
    """Return the text of an error, preceded by a description of the command that failed if it is known."""
    call, text = _failed_call(error), text_of(error)
    return text if call is None else f"{call}: {text}"


def _failed_call(error: BaseException) -> Call | None:
    """Return this thread's newest command if the error belongs to it.

    Return None if this thread has sent no command, or if the error occurred before a command could be sent.
    """
    if isinstance(error, ServerSelectionTimeoutError | WaitQueueTimeoutError):
        return None
    call, named = newest(), _ADDRESS.match(text_of(error))
    if call is not None and named is not None and named[1] != call.address:
        # A connection to another server could not be opened: the newest command has nothing to do with it.
        return None
    return call


def is_history_lost(error: BaseException) -> bool:
    """Return whether the error means that the oplog no longer holds the events that a change stream must read next."""
    return code_of(error) in (CHANGE_STREAM_HISTORY_LOST, CAPPED_POSITION_LOST)


def is_cursor_lost(error: BaseException) -> bool:
    """Return whether the error means that the cursor is lost and must be opened again.

    The server forgot or killed it, or its collection was dropped or renamed.
    """
    return code_of(error) in (CURSOR_NOT_FOUND, QUERY_PLAN_KILLED, _CURSOR_KILLED)


def named_kind(error: BaseException) -> ErrorKind | None:
    """Return the error kind under which a driver's error is reported.

    The kind is OplogWindowExceeded, NotAuthorized, ClusterUnreachable or UnexpectedServerError. Return None for other
    refusals by a server (see `is_refusal_code`), and for errors without a server's code that are not transient.
    """
    if is_history_lost(error):
        return OPLOG_WINDOW_EXCEEDED
    code = code_of(error)
    if code in _AUTHENTICATION_CODES:
        return NOT_AUTHORIZED
    if is_transient(error):
        return CLUSTER_UNREACHABLE
    return None if code is None or is_refusal_code(code) else UNEXPECTED_SERVER_ERROR


@contextmanager
def named_errors() -> Iterator[None]:
    """Convert errors of the driver in the block to OperationError if `named_kind` returns a kind for them.

    The text of ClusterUnreachable, and of NotAuthorized for a missing privilege, also names the command that failed and
    the server, if they are known. All other errors are raised unchanged.
    """
    try:
        yield
    except PyMongoError as error:
        kind = named_kind(error)
        if kind is None:
            raise
        named = kind is CLUSTER_UNREACHABLE or code_of(error) == UNAUTHORIZED
        text = with_command(error) if named else text_of(error)
        raise OperationError(kind, f"{text}.") from error


def named(error: BaseException) -> BaseException:
    """Convert a driver's error to the OperationError under which it is reported: InternalError if no other kind fits.

    For an exception group, convert its first exception. Return any other exception unchanged.
    """
    if isinstance(error, BaseExceptionGroup):
        return named(error.exceptions[0])
    if not isinstance(error, PyMongoError):
        return error
    # The server's reply to an internal error may be large: report only its message.
    return OperationError(named_kind(error) or INTERNAL_ERROR, f"{text_of(error)}.")
