"""The pieces of work of one generation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from verifier.cluster.namespace import Namespace
from verifier.compare.scope import NamespacePair

# How many documents one task looks at again, and how many bytes of keys it holds.
_MOST_KEYS = 1_000
_MOST_KEY_BYTES = 4 << 20


class Work(Enum):
    """COLLECTION compares a definition; RANGE the documents of a range; RECHECK single documents.

    COUNT compares the numbers of documents, when all other tasks are done.
    """

    COLLECTION = "collection"
    RANGE = "range"
    RECHECK = "recheck"
    COUNT = "count"

    @property
    def of_documents(self) -> bool:
        """Whether it reads documents, which `Task.documents` and `Task.size` are about."""
        return self in (Work.RANGE, Work.RECHECK)


class Status(Enum):
    ADDED = "added"
    COMPLETED = "completed"
    FAILED = "failed"


class RecheckId(NamedTuple):
    """Which recheck this is: of a namespace, the digest of the document's key, and whether it was found different.

    In this order they are read, so that a change of a document comes right before its mismatch. Without a digest it is
    the whole collection.
    """

    namespace: Namespace
    digest: bytes
    mismatched: bool


class Recheck(NamedTuple):
    """A document to look at again, by the names on the source; of a mismatch, since when it is known."""

    id: RecheckId
    key: bytes
    since: float | None


def digest_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def recheck_of(namespace: Namespace, key: bytes, since: float | None = None) -> Recheck:
    """The recheck of a document; of one that was found different, with the time of that."""
    return Recheck(RecheckId(namespace, digest_of(key), since is not None), key, since)


def whole_collection(namespace: Namespace) -> Recheck:
    return Recheck(RecheckId(namespace, b"", False), b"", None)


@dataclass(frozen=True)
class Task:
    """One piece of work, and what became of it.

    `names` are those that users know for a COLLECTION and a COUNT, and of where the documents are for the others.
    `scan` asks that the documents of the collection be compared, too. `lower` and `upper` bound a RANGE (see
    `ranges.Range`), `first` and `last` a RECHECK. `documents` and `size` (bytes) are what was compared, an estimate
    until it is done. Of a COLLECTION or COUNT, `definition_differs` tells what failed, and `unscanned` that its
    documents could not be compared though they should have been.
    """

    number: int
    work: Work
    names: NamespacePair
    scan: bool = False
    lower: bytes | None = None
    upper: bytes | None = None
    first: RecheckId | None = None
    last: RecheckId | None = None
    status: Status = Status.ADDED
    documents: int = 0
    size: int = 0
    definition_differs: bool = False
    unscanned: bool = False


class KeyGroup(NamedTuple):
    """Rechecks of one namespace that are one task: the first and last of them, and how many documents they are."""

    namespace: Namespace
    first: RecheckId
    last: RecheckId
    documents: int


def key_groups(rechecks: Iterable[Recheck]) -> Iterator[KeyGroup]:
    """Cut rechecks, in the order of their ids, into groups for one task each."""
    group: KeyGroup | None = None
    size = 0
    for each in rechecks:
        if not each.id.digest:
            continue
        same = group is not None and group.last[:2] == each.id[:2]
        if group is not None and not same and _full(group, size, each):
            yield group
            group = None
        if group is None:
            group, size = KeyGroup(each.id.namespace, each.id, each.id, 0), 0
        documents = group.documents + (0 if same else 1)
        group = group._replace(last=each.id, documents=documents)
        size += len(each.key)
    if group is not None:
        yield group


def _full(group: KeyGroup, size: int, following: Recheck) -> bool:
    return (
        group.namespace != following.id.namespace
        or group.documents >= _MOST_KEYS
        or size + len(following.key) > _MOST_KEY_BYTES
    )


def merged(rechecks: Iterable[Recheck]) -> dict[bytes, Recheck]:
    """One recheck a document, by digest; what was changed since it was found different has no `since`."""
    found: dict[bytes, Recheck] = {}
    for each in rechecks:
        found.setdefault(each.id.digest, each)
    return found
