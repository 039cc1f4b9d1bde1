"""The mismatches that a comparison finds."""

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
    """A difference within a document: `detail` says how source and destination differ at `path`.

    `path` is a dotted path such as `a.b`. It is empty if the difference concerns the document as a whole.
    """

    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}" if self.path else self.detail


def _both(namespace: Namespace, destination: Namespace | None) -> str:
    if destination is None:
        return str(namespace)
    return f"{namespace} ({destination} on the destination)"


@dataclass(frozen=True)
class DocumentMismatch:
    """A document that differs between the clusters, or that only one cluster has.

    `namespace` is the namespace on the source. `key` is a BSON document with only the `_id`. `fields` is empty if only
    one cluster has the document.
    """

    namespace: Namespace
    key: bytes
    difference: Difference
    fields: tuple[FieldDifference, ...] = ()
    # The name on the destination; None if it is the same.
    destination: Namespace | None = None

    @property
    def names(self) -> str:
        """Return the namespace on the source as text, followed by the namespace on the destination if it differs."""
        return _both(self.namespace, self.destination)

    def __str__(self) -> str:
        fields = "; ".join(map(str, self.fields))
        detail = f" ({fields})" if fields else ""
        return f"{self.names}: the document with _id {shown(self.key)} is {self.difference}{detail}"


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
    """A difference in the definition or the number of documents of a collection or view.

    `component` is the name of the option or index that differs; empty for other aspects.
    """

    namespace: Namespace
    difference: Difference
    aspect: Aspect
    component: str = ""
    detail: str = ""
    # The name on the destination; None if it is the same.
    destination: Namespace | None = None

    @property
    def names(self) -> str:
        """Return the namespace on the source as text, followed by the namespace on the destination if it differs."""
        return _both(self.namespace, self.destination)

    def __str__(self) -> str:
        subject = f"{_SUBJECTS[self.aspect]} {self.component}".rstrip()
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.names}: {subject} is {self.difference}{detail}"


Mismatch = DocumentMismatch | DefinitionMismatch


@dataclass(frozen=True)
class StoredMismatch:
    """A mismatch that a generation has found and saved.

    `first_seen` and `last_seen` say when the mismatch was first and last found, in UNIX seconds. `first_seen` is reset
    when the document changes. A caller that sends `page_token` receives the mismatches after this one.
    """

    mismatch: Mismatch
    generation: int
    first_seen: float
    last_seen: float
    page_token: str
