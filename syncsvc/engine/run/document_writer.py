"""Writes user documents to the destination. Each call runs one batch of inserts, updates or deletes, as raw BSON.

No other module of the engine writes user documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bson.binary import Binary
from pymongo.errors import OperationFailure

from syncsvc.rules.taken_names import replaced_error
from syncsvc.saved.fence import FencedWriter
from verifier.cluster.failures import COLLECTION_UUID_MISMATCH, DUPLICATE_KEY
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import RawDocuments
from verifier.runtime.tasks import Budget, StopToken

# From this many updates or deletes on, one transaction is cheaper than retryable writes: the server writes a separate
# record for each retryable update and delete, but a common one for hundreds of retryable inserts.
_MANY = 8


class Refused(Exception):
    """Raised if the server refuses some statements of a delete. `errors` are the `writeErrors` of the reply."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors[0].get("errmsg"))
        self.errors = errors


class DocumentWriter:
    """Writes documents to the destination without checking its validators, because the source has accepted them.

    The commands that run at the same time contain at most `sending_bytes` bytes of documents together; further commands
    wait, and a larger command runs alone. `uuid_of` returns the UUID that the collection with a given name must have;
    None if any UUID is allowed. If the collection has another UUID or does not exist, the server refuses the write, and
    the method raises OperationError DestinationNamespaceExists.
    """

    def __init__(
        self,
        writer: FencedWriter,
        sending_bytes: int,
        stop: StopToken,
        uuid_of: Callable[[Namespace], bytes | None],
    ) -> None:
        self._writer = writer
        self._uuid_of = uuid_of
        self._sending = Budget(sending_bytes, stop)

    def insert(self, namespace: Namespace, documents: bytes) -> list[dict[str, Any]]:
        """Insert BSON documents, and return the server's write errors. A refused document does not stop the others.

        `documents` contains the documents end to end. If a document with the same `_id` already exists, on a sharded
        collection on the same shard, it stays unchanged, and a write error is returned.
        """
        reply = self._write(namespace, "insert", "documents", [documents], ordered=False)
        return list(reply.get("writeErrors", ()))

    def update(
        self, namespace: Namespace, statements: Sequence[bytes], ordered: bool, retried: bool = True
    ) -> tuple[int, list[dict[str, Any]]]:
        """Run update statements. Return the number of documents that they matched or created, and the write errors.

        `statements` are elements of the `updates` array, as BSON. If `ordered`, the server stops at the first error. If
        not `retried`, a transient failure is raised as the driver's error instead of being retried.
        """
        as_transaction = len(statements) >= _MANY
        reply = self._write(
            namespace,
            "update",
            "updates",
            statements,
            ordered,
            as_transaction=as_transaction,
            retried=retried,
        )
        return int(reply["n"]), list(reply.get("writeErrors", ()))

    def delete(self, namespace: Namespace, statements: Sequence[bytes], ordered: bool) -> None:
        """Run delete statements (elements of the `deletes` array, as BSON). A delete that matches nothing succeeds.

        If `ordered`, the server stops at the first error. Raises Refused if the server refuses any statement.
        """
        as_transaction = len(statements) >= _MANY
        reply = self._write(
            namespace, "delete", "deletes", statements, ordered, as_transaction=as_transaction
        )
        errors = reply.get("writeErrors")
        if errors:
            raise Refused(errors)

    def _write(
        self,
        namespace: Namespace,
        verb: str,
        field: str,
        parts: Sequence[bytes],
        ordered: bool,
        *,
        as_transaction: bool = False,
        retried: bool = True,
    ) -> dict[str, Any]:
        documents = b"".join(parts)
        command = {
            verb: namespace.collection,
            "ordered": ordered,
            field: [RawDocuments(documents)],
        }
        if verb != "delete":
            command["bypassDocumentValidation"] = True
        uuid = self._uuid_of(namespace)
        if uuid is not None:
            command["collectionUUID"] = Binary(uuid, 4)
        with self._sending.hold(len(documents)):
            return self._run(namespace, command, retried, as_transaction)

    def _run(
        self, namespace: Namespace, command: dict[str, Any], retried: bool, as_transaction: bool
    ) -> dict[str, Any]:
        try:
            reply = self._writer.run(namespace.database, command, retried, as_transaction)
        except OperationFailure as error:
            if error.code == COLLECTION_UUID_MISMATCH:
                raise replaced_error(namespace) from error
            raise
        if any(each["code"] == COLLECTION_UUID_MISMATCH for each in reply.get("writeErrors", ())):
            raise replaced_error(namespace)
        return reply


def already_exists(error: dict[str, Any]) -> bool:
    """Return whether a write error of an insert says that a document with the same `_id` already exists."""
    return error["code"] == DUPLICATE_KEY and list(error.get("keyPattern", {"_id": 1})) == ["_id"]


def refusal(error: dict[str, Any]) -> str:
    """Return the message and the error code of a write error (an element of `writeErrors`) as text."""
    return f"{error.get('errmsg', 'the server gave no reason')} (code {error.get('code')})"
