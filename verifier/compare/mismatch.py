"""The mismatches that a comparison finds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from verifier.cluster.keys import shown
from verifier.cluster.namespace import Namespace


class Difference(Enum):
    """The kind of a difference between source and destination. The values are names in the API."""

    MISSING = "missingOnDst"
    EXTRA = "extraOnDst"
    CONTENT = "content"

    def __str__(self) -> str:
        return _SHOWN[self]


_SHOWN = {
    Difference.MISSING: "missing on the destination",
    Difference.EXTRA: "extra on the destination",
    Difference.CONTENT: "different",
}


@dataclass(frozen=True)
class FieldDifference:
    """A difference within a document: `detail` says how the two sides differ at `path`.

    The steps of a path are joined by dots; the path of the document itself is empty.
    """

    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}" if self.path else self.detail


@dataclass(frozen=True)
class DocumentMismatch:
    """One document that is not equal on both sides.

    `namespace` is the one on the source. `key` is a BSON document with only the `_id`. `fields` are only set for
    documents that exist on both sides.
    """

    namespace: Namespace
    key: bytes
    difference: Difference
    fields: tuple[FieldDifference, ...] = ()

    def __str__(self) -> str:
        fields = "; ".join(map(str, self.fields))
        detail = f" ({fields})" if fields else ""
        return f"{self.namespace}: the document with _id {shown(self.key)} is {self.difference}{detail}"


class Aspect(Enum):
    """The aspect of a collection or view that differs. The value is the name in the API."""

    EXISTENCE = "exist"
    KIND = "type"
    OPTION = "spec"
    INDEX = "index"
    SHARD_KEY = "shard key"
    COUNT = "count"


_SUBJECTS = {
    Aspect.EXISTENCE: "it",
    Aspect.KIND: "its type",
    Aspect.OPTION: "option",
    Aspect.INDEX: "index",
    Aspect.SHARD_KEY: "its shard key",
    Aspect.COUNT: "its number of documents",
}


@dataclass(frozen=True)
class DefinitionMismatch:
    """A difference in the definition or count of a collection or view. `component` names the option or index."""

    namespace: Namespace
    difference: Difference
    aspect: Aspect
    component: str = ""
    detail: str = ""

    def __str__(self) -> str:
        subject = f"{_SUBJECTS[self.aspect]} {self.component}".rstrip()
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.namespace}: {subject} is {self.difference}{detail}"


Mismatch = DocumentMismatch | DefinitionMismatch


@dataclass(frozen=True)
class StoredMismatch:
    """A mismatch as saved in a generation.

    `first_seen` and `last_seen` are UNIX seconds. `first_seen` is reset when the document changes. `page_token` is the
    token with which a caller requests the mismatches after this one.
    """

    mismatch: Mismatch
    generation: int
    first_seen: float
    last_seen: float
    page_token: str
