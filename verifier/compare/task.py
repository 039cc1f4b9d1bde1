"""Defines tasks, the units of work of a generation (one pass of a check), such as comparing a range of documents.

Also groups rechecks, which are requests to compare documents again, into tasks.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from verifier.cluster.namespace import Namespace
from verifier.compare.scope import NamespacePair

# The maximum number of documents that one task rechecks, and the maximum size of their keys in bytes.
_MOST_KEYS = 1_000
_MOST_KEY_BYTES = 4 << 20


class Work(Enum):
    """The kind of a task. COLLECTION compares a definition, RANGE the documents of a range, RECHECK single documents.

    COUNT compares the numbers of documents, after all other tasks are done.
    """

    COLLECTION = "collection"
    RANGE = "range"
    RECHECK = "recheck"
    COUNT = "count"

    @property
    def of_documents(self) -> bool:
        """Return whether a task of this kind reads documents, which `Task.documents` and `Task.size` count."""
        return self in (Work.RANGE, Work.RECHECK)


class Status(Enum):
    """The status of a task. ADDED: not finished. COMPLETED: finished, no difference. FAILED: found a difference."""

    ADDED = "added"
    COMPLETED = "completed"
    FAILED = "failed"


class RecheckId(NamedTuple):
    """Identifies a recheck by its namespace, the digest of the document's key, and the reason for the recheck.

    `mismatched` is True if the document was found to differ, and False if it has changed. Rechecks are read in the
    order of these fields, so that the recheck for a change of a document comes right before the recheck for its
    mismatch. An empty digest means the whole collection.
    """

    namespace: Namespace
    digest: bytes
    mismatched: bool


class Recheck(NamedTuple):
    """A document, or a whole collection, to compare again. `id.namespace` is its namespace on the source.

    `key` is a document key, of which only the `_id` matters; it is empty for a whole collection. `since` is when the
    document was first seen to differ, in UNIX seconds; None if it was not found to differ.
    """

    id: RecheckId
    key: bytes
    since: float | None


def digest_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def recheck_of(namespace: Namespace, key: bytes, since: float | None = None) -> Recheck:
    """Return the recheck of the document with the document key `key`.

    `since` is when the document was first seen to differ, in UNIX seconds; None if it is compared again only because a
    change event named it.
    """
    return Recheck(RecheckId(namespace, digest_of(key), since is not None), key, since)


def whole_collection(namespace: Namespace) -> Recheck:
    return Recheck(RecheckId(namespace, b"", False), b"", None)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a generation, and its result. A large check has hundreds of thousands of tasks in memory."""

    number: int
    work: Work
    # For COLLECTION and COUNT, the names of the collection or view. For RANGE and RECHECK, the namespaces that store
    # the documents: for a time-series collection, the namespaces of its buckets.
    names: NamespacePair
    # COLLECTION: whether the task also adds RANGE tasks, which compare the documents. (For a time-series collection, it
    # may add them even if this is False: see `Worker`.)
    scan: bool = False
    # RANGE: the bounds of the range, as in `ranges.Range`.
    lower: bytes | None = None
    upper: bytes | None = None
    # RECHECK: the first and the last recheck of the task.
    first: RecheckId | None = None
    last: RecheckId | None = None
    status: Status = Status.ADDED
    # How many documents and bytes were compared; estimates until the task is done.
    documents: int = 0
    size: int = 0
    # COLLECTION and COUNT: whether the task found a difference.
    definition_differs: bool = False
    # COLLECTION: whether the task found a difference and could not add RANGE tasks. The next generation tries again to
    # compare all documents.
    unscanned: bool = False


class KeyGroup(NamedTuple):
    """The rechecks of one namespace that form one task: the first and the last of them, and the number of documents."""

    namespace: Namespace
    first: RecheckId
    last: RecheckId
    documents: int


def key_groups(rechecks: Iterable[Recheck]) -> Iterator[KeyGroup]:
    """Split rechecks, given in the order of their ids, into groups; the documents of each group become one task.

    A group contains rechecks of one namespace, up to a maximum number and size. Rechecks of whole collections are left
    out.
    """
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
    """Merge rechecks, given in the order of their ids, into one per key, and return them by the digest of the key.

    If a document was found to differ and has also changed, the result contains its recheck for the change, whose
    `since` is None.
    """
    found: dict[bytes, Recheck] = {}
    for each in rechecks:
        found.setdefault(each.id.digest, each)
    return found
