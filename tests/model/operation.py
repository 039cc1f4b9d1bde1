"""An operation that a writer sends to the source. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

Document = dict[str, Any]


class End(Enum):
    """The end of a transaction."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class Operation:
    """Commands that run one after another; with `end`, they are one transaction."""

    database: str
    commands: tuple[Document, ...]
    end: End | None = None


def plain(database: str, *commands: Document) -> Operation:
    return Operation(database, commands)
