"""Reads of one collection, known by its UUID, under whatever name it has by now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.namespace import Namespace

T = TypeVar("T")


class CollectionGone(Exception):
    """The collection was dropped."""


def follow_renames(namespace: Namespace, read: Callable[[Namespace], Iterator[T]]) -> Iterator[T]:
    """What `read` yields of the collection, called again with its new name after each rename.

    `read` names the collection's UUID to the server, and goes on where it was. Raises CollectionGone, and the driver's
    other errors.
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
