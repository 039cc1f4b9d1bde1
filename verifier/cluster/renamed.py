"""Reads a collection that is identified by its UUID, even if it is renamed while it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.namespace import Namespace

T = TypeVar("T")


class CollectionGone(Exception):
    """Raised if a collection was dropped or, where servers accept no UUID, lost its name before or during a read."""


def follow_renames(namespace: Namespace, read: Callable[[Namespace], Iterator[T]]) -> Iterator[T]:
    """Yield the results of `read(namespace)`; after each rename of the collection, continue with `read(new name)`.

    `read` must send the collection's UUID in its commands, and continue where its last call stopped. Raises
    CollectionGone if the collection was dropped, and the driver's other errors.
    """
    while True:
        try:
            yield from read(namespace)
            return
        except OperationFailure as error:
            if error.code != failures.COLLECTION_UUID_MISMATCH:
                raise
            renamed = failures.actual_collection(error)
            if renamed is None:
                raise CollectionGone from error
            namespace = Namespace(namespace.database, renamed)
