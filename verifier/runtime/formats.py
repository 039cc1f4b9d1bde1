"""Upgrades saved documents from the format of an older version of the program.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verifier.runtime.errors import ErrorKind, OperationError

Document = dict[str, Any]


@dataclass(frozen=True)
class Formats:
    """The formats of one kind of saved document, which contains the number of its format in the field `format`.

    Each function in `steps` upgrades a document by one format; the first one upgrades from the format `oldest`. The
    functions have no side effects. To change the format, append a step. A new field needs no step if reading supplies a
    default for it, and if an older version may ignore it.

    `subject` names the document in error texts. `unsupported` is the error for a format that this version cannot read.
    """

    subject: str
    oldest: int
    steps: tuple[Callable[[Document], Document], ...]
    unsupported: ErrorKind

    @property
    def current(self) -> int:
        """Return the number of the newest format that this version reads. It may save a document in an older format."""
        return self.oldest + len(self.steps)

    def upgrade(self, document: Mapping[str, Any]) -> Document:
        """Return the document in the current format.

        Raise OperationError `unsupported` if this version cannot read the format of the document.
        """
        self.check(document)
        upgraded = dict(document)
        for step in self.steps[document["format"] - self.oldest :]:
            upgraded = step(upgraded)
        return {**upgraded, "format": self.current}

    def check(self, document: Mapping[str, Any]) -> None:
        """Raise OperationError `unsupported` if this version cannot read the format of the document."""
        found = document.get("format")
        if not isinstance(found, int) or found < self.oldest:
            reason = (
                f"this version of the program reads the formats {self.oldest} to {self.current}"
            )
        elif found > self.current:
            reason = (
                "the format is of a newer version of the program, and this version reads formats up to "
                f"{self.current}. Start the newer version again"
            )
        else:
            return
        raise OperationError(self.unsupported, f"{self.subject} has format {found}: {reason}.")
