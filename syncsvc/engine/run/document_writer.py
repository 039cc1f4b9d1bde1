"""Writes user documents on the destination, in batches of raw bytes, one command each.

No other module of the engine writes user documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncsvc.saved.fence import FencedWriter
from verifier.cluster.failures import DUPLICATE_KEY
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import RawDocuments
from verifier.runtime.tasks import Budget, StopToken

# From this many statements, or this many bytes of documents to insert, one transaction is cheaper than retryable
# writes.
_MANY = 8
_MANY_BYTES = 64 << 10


class Refused(Exception):
    """The server refused some documents of a command. `errors` are the `writeErrors` of its reply, at least one."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors[0].get("errmsg"))
        self.errors = errors


class DocumentWriter:
    """Writes documents with validators bypassed: the documents of the source are correct by definition.

    All commands in flight together hold at most `sending_bytes` of documents; further ones wait.
    """

    def __init__(self, writer: FencedWriter, sending_bytes: int, stop: StopToken) -> None:
        self._writer = writer
        self._sending = Budget(sending_bytes, stop)

    def insert(self, namespace: Namespace, documents: bytes) -> list[dict[str, Any]]:
        """Insert documents that are stored end to end, in any order, and return the write errors.

        Existing documents stay unchanged, and count as write errors.
        """
        as_transaction = len(documents) >= _MANY_BYTES
        reply = self._write(
            namespace,
            "insert",
            "documents",
            [documents],
            ordered=False,
            as_transaction=as_transaction,
        )
        return list(reply.get("writeErrors", ()))

    def update(
        self, namespace: Namespace, statements: Sequence[bytes], ordered: bool, retried: bool = True
    ) -> tuple[int, list[dict[str, Any]]]:
        """Run update statements; return how many matched or created a document, and the write errors.

        `statements` are elements of the `updates` array, as BSON. If not `retried`, a transient failure is raised as
        the driver's error instead of being retried.
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
        """Run delete statements (elements of the `deletes` array, as BSON); one that matches nothing succeeds.

        Raises Refused if the server refuses any of them.
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
        as_transaction: bool,
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
        with self._sending.hold(len(documents)):
            return self._writer.run(namespace.database, command, retried, as_transaction)


def already_exists(error: dict[str, Any]) -> bool:
    """Return whether an insert was refused because its `_id` already exists."""
    return error["code"] == DUPLICATE_KEY and list(error.get("keyPattern", {"_id": 1})) == ["_id"]


def refusal(error: dict[str, Any]) -> str:
    """Return the server's message and code from a write error."""
    return f"{error.get('errmsg', 'the server gave no reason')} (code {error.get('code')})"
