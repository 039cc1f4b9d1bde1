"""The class Operation: one or more commands that a thread of the model test sends to the source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

Document = dict[str, Any]


class End(Enum):
    """The two ways in which a transaction can end."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class Operation:
    """Commands on one database that run one after another; if `end` is not None, they form one transaction."""

    database: str
    commands: tuple[Document, ...]
    end: End | None = None


def plain(database: str, *commands: Document) -> Operation:
    return Operation(database, commands)
