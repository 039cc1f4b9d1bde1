"""What a comparison finds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from verifier.cluster.namespace import Namespace


class Difference(Enum):
    MISSING = "missing on destination"
    EXTRA = "extra on destination"
    CONTENT = "different"


@dataclass(frozen=True)
class Mismatch:
    """Evidence that one thing differs: `subject` names it within the namespace, `detail` says how."""

    namespace: Namespace
    difference: Difference
    subject: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.namespace}: {self.subject} is {self.difference.value}{detail}"
