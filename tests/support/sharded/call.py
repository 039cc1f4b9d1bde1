"""One command of a client, on its way to a server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.support.sharded.wire import Document


@dataclass(frozen=True)
class Call:
    """One command: its fields, the first of which names it, and its sections of documents as they came.

    It is retryable where it came as a write that the client may send again.
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
        """What it is about, a collection mostly."""
        return self.body[self.name]

    def called(self, name: str, target: Any = None, **more: Any) -> Call:
        """The command under another name, with further fields."""
        first, *others = self.body.items()
        changed = {name: first[1] if target is None else target, **dict(others), **more}
        return replace(self, body=changed)

    def having(self, **more: Any) -> Call:
        return replace(self, body={**self.body, **more})
