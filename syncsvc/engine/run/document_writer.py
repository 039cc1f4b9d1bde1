"""Writes user documents on the destination: the only place that does. Whole batches of bytes, one command each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncsvc.saved.fence import FencedWriter
from verifier.cluster.failures import DUPLICATE_KEY
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import RawDocuments
from verifier.runtime.tasks import Budget, StopToken

# From this number of statements on, or this many bytes of documents to insert, a transaction costs less than as many
# retryable writes.
_MANY = 8
_MANY_BYTES = 64 << 10


class Refused(Exception):
    """The server refused single documents of a command; `errors` are its write errors, with `index`."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors[0].get("errmsg"))
        self.errors = errors


class DocumentWriter:
    """Validators are bypassed: what the source holds is right by definition."""

    def __init__(self, writer: FencedWriter, sending_bytes: int, stop: StopToken) -> None:
        self._writer = writer
        self._sending = Budget(sending_bytes, stop)

    def insert(self, namespace: Namespace, documents: bytes) -> list[dict[str, Any]]:
        """Insert documents that stand end to end: the write errors. What is there stays as it is there."""
        together = len(documents) >= _MANY_BYTES
        reply = self._write(
            namespace, "insert", "documents", [documents], ordered=False, together=together
        )
        return list(reply.get("writeErrors", ()))

    def update(
        self, namespace: Namespace, statements: Sequence[bytes], ordered: bool, repeat: bool = True
    ) -> tuple[int, list[dict[str, Any]]]:
        """Run update statements: how many found or made their document, and the write errors.

        Without `repeat`, a transient failure is raised as the driver's error.
        """
        together = len(statements) >= _MANY
        reply = self._write(
            namespace, "update", "updates", statements, ordered, together=together, repeat=repeat
        )
        return int(reply["n"]), list(reply.get("writeErrors", ()))

    def delete(self, namespace: Namespace, statements: Sequence[bytes], ordered: bool) -> None:
        """Run delete statements; deleting nothing succeeds. Raises Refused."""
        together = len(statements) >= _MANY
        reply = self._write(namespace, "delete", "deletes", statements, ordered, together=together)
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
        together: bool,
        repeat: bool = True,
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
            return self._writer.run(namespace.database, command, repeat, together)


def is_there_already(error: dict[str, Any]) -> bool:
    """Whether an insert was refused because its `_id` is there."""
    return error["code"] == DUPLICATE_KEY and list(error.get("keyPattern", {"_id": 1})) == ["_id"]


def refusal(error: dict[str, Any]) -> str:
    """What the server said of a document that it refused."""
    return f"{error.get('errmsg', 'no reason was told')} (code {error.get('code')})"
