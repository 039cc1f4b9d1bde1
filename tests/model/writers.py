"""Runs operations on the source in threads, and keeps a journal of these operations with the server's errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from syncsvc.sandbox.document_merge import LENIENT
from tests.model.operation import Document, End, Operation
from tests.model.plan import Stream

AnyClient = MongoClient[Any]

# The timeout of operations that wait for each other on the server, in milliseconds.
_MOST_MS = 20_000

# The server's errors for operations that do not fit the current data.
REFUSALS = {
    2: "BadValue",
    5: "GraphContainsCycle",
    9: "FailedToParse",
    12: "UnsupportedFormat: a document with both operators and fields, on a shard",
    14: "TypeMismatch",
    20: "IllegalOperation",
    24: "LockTimeout",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    28: "PathNotViable",
    40: "ConflictingUpdateOperators",
    47: "NoMatchingDocument: an index build whose collection is dropped",
    48: "NamespaceExists",
    50: "MaxTimeMSExpired",
    52: "DollarPrefixedFieldName",
    56: "EmptyFieldName",
    59: "CommandNotFound: a command that routers do not support",
    61: "ShardKeyNotFound: an upsert without the shard key",
    66: "ImmutableField",
    67: "CannotCreateIndex",
    68: "IndexAlreadyExists",
    72: "InvalidOptions",
    85: "IndexOptionsConflict",
    86: "IndexKeySpecsConflict",
    112: "WriteConflict",
    117: "ConflictingOperationInProgress: two collMods of a collection on a sharded cluster",
    121: "DocumentValidationFailure",
    125: "CommandFailed",
    166: "CommandNotSupportedOnView",
    167: "OptionNotSupportedOnView",
    171: "CannotIndexParallelArrays",
    175: "QueryPlanKilled",
    181: "AmbiguousIndexKeyPattern",
    197: "InvalidIndexSpecificationOption",
    215: "DatabaseDropPending",
    246: "SnapshotUnavailable",
    276: "IndexBuildAborted",
    370: "CannotDropShardKeyIndex",
    11000: "DuplicateKey",
    12587: "BackgroundOperationInProgressForNamespace",
    16766: "an array in a field with a hashed index",
    16804: "an invalid location in a field with a geo index",
    17152: "$out to a capped collection",
    28769: "$out to a sharded collection",
    31025: "an update changes a shard key that its query does not contain",
    50810: "KeyString format error: a duplicate key in a clustered collection",
    50819: "KeyString format error",
    50825: "KeyString format error",
    50826: "KeyString format error",
    51132: "$merge with an unsupported value in a key field",
    51181: "a combination of $merge modes that is not supported",
    6201808: "time-series options for a collection that is not a time-series collection",
}


class Refused(Exception):
    """Raised if the server has refused a command, or some of its statements. `codes` are the error codes."""

    def __init__(self, errors: Sequence[Document]) -> None:
        super().__init__("; ".join(f"{each['code']}: {each['errmsg']}" for each in errors))
        self.errors = errors
        self.codes = {each["code"] for each in errors}


class Entry(NamedTuple):
    """An operation in the journal.

    `time` is the source's cluster time after the operation; None if unknown. `refused` is the server's error; None if
    the server has accepted the operation.
    """

    writer: int
    number: int
    operation: Operation
    time: Any
    refused: Refused | None


@dataclass
class Writers:
    """Runs streams of operations on the source, each in its own thread, and keeps a journal of them."""

    client: AnyClient
    journal: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._turns = threading.Condition()
        # The number of operations that run now; -1 if one runs alone.
        self._running = 0

    @contextmanager
    def writing(self, streams: Sequence[Stream]) -> Iterator[list[Future[None]]]:
        """Run each stream of operations in a thread during the block, and wait for their end after it.

        Yields the futures of the threads. An error in the block stops the threads. Raises AssertionError if the server
        refuses an operation with an unexpected error.
        """
        with ThreadPoolExecutor(len(streams), "writer") as executor:
            running = [executor.submit(self._write, *each) for each in enumerate(streams)]
            try:
                yield running
            except BaseException:
                self._stopping.set()
                raise
            wait(running)
        for each in running:
            each.result()

    def _write(self, writer: int, stream: Stream) -> None:
        for number, operation in enumerate(stream):
            if self._stopping.is_set():
                return
            time, refused = None, None
            try:
                with self._turn(operation):
                    time = perform(self.client, operation)
            except Refused as error:
                refused = error
                if not error.codes <= REFUSALS.keys():
                    raise AssertionError(f"{operation} was refused: {error}") from error
            self.journal.append(Entry(writer, number, operation, time, refused))

    @contextmanager
    def _turn(self, operation: Operation) -> Iterator[None]:
        """Run the block beside other operations; alone, if the operation creates a time-series collection.

        If another client inserts into that collection at the same time, MongoDB 6.0 can create a regular collection
        beside the buckets, so that later inserts cannot be found (`inventory.hidden_time_series`).
        """
        alone = any("timeseries" in each for each in operation.commands)
        with self._turns:
            self._turns.wait_for(lambda: self._running == 0 if alone else self._running >= 0)
            self._running = -1 if alone else self._running + 1
        try:
            yield
        finally:
            with self._turns:
                self._running = 0 if alone else self._running - 1
                self._turns.notify_all()


def perform(client: AnyClient, operation: Operation) -> Any:
    """Run an operation, and return the source's cluster time after it; None if the server has not returned a time.

    Raises Refused if the server refuses a command, or a statement of a command.
    """
    if operation.end is None:
        return _perform_plainly(client, operation)
    with transaction(client, operation) as session:
        pass
    return session.operation_time


@contextmanager
def transaction(client: AnyClient, operation: Operation) -> Iterator[ClientSession]:
    """Run the commands of the operation in a transaction before the block, and commit or abort it after the block.

    `operation.end` says whether to commit or abort. Yields the session of the transaction. Raises Refused if the server
    refuses a command, a statement or the commit.
    """
    # Closing the session aborts its transaction.
    with client.start_session() as session:
        session.start_transaction(max_commit_time_ms=_MOST_MS)
        for command in operation.commands:
            _run(client, operation, command, session)
        yield session
        if operation.end is End.ABORT:
            return
        try:
            session.commit_transaction()
        except OperationFailure as error:
            raise _refused(error) from error


def _perform_plainly(client: AnyClient, operation: Operation) -> Any:
    """Run all commands of an operation without a transaction; if one is refused, still run the others.

    Return the source's cluster time after the last command. Raises Refused with all errors if any command was refused.
    """
    refused: list[Document] = []
    time = None
    for command in operation.commands:
        try:
            time = _run(client, operation, command, None)
        except Refused as error:
            refused.extend(error.errors)
    if refused:
        raise Refused(refused)
    return time


def _run(
    client: AnyClient, operation: Operation, command: Document, session: ClientSession | None
) -> Any:
    try:
        # The server's messages about some documents are not valid UTF-8.
        reply = client[operation.database].command(
            {**command, "maxTimeMS": _MOST_MS}, codec_options=LENIENT, session=session
        )
    except OperationFailure as error:
        raise _refused(error) from error
    errors = reply.get("writeErrors")
    if errors:
        raise Refused(errors)
    return reply.get("operationTime")


def _refused(error: OperationFailure) -> Refused:
    return Refused(
        [{"code": error.code, "errmsg": str((error.details or {}).get("errmsg", error))}]
    )
