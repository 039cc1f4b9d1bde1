"""One thing that a writer asks of the source. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

Document = dict[str, Any]


class End(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class Operation:
    """Commands, one after the other; in a transaction where `end` says so."""

    database: str
    commands: tuple[Document, ...]
    end: End | None = None


def plain(database: str, *commands: Document) -> Operation:
    return Operation(database, commands)
