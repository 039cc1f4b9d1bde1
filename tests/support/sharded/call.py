"""A client's command that the stand-in for mongos forwards to a server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.support.sharded.wire import Document


@dataclass(frozen=True)
class Call:
    """A command: its fields, the first of which is its name, and its document sequences as bytes of the wire protocol.

    `retryable` says whether the client has sent the command as a retryable write.
    """

    body: Document
    sequences: bytes = b""
    retryable: bool = False

    @property
    def name(self) -> str:
        return next(iter(self.body))

    @property
    def database(self) -> str:
        return str(self.body["$db"])

    @property
    def target(self) -> Any:
        """Return the value of the first field, which is usually the name of a collection."""
        return self.body[self.name]

    def called(self, name: str, target: Any = None, **more: Any) -> Call:
        """Return a copy of the command with another name and with these additional fields.

        `target` is the new value of the first field; None keeps the value.
        """
        first, *others = self.body.items()
        changed = {name: first[1] if target is None else target, **dict(others), **more}
        return replace(self, body=changed)

    def having(self, **more: Any) -> Call:
        return replace(self, body={**self.body, **more})
