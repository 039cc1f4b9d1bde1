"""Computes which changes of documents one of several instances applies: its share.

All events of one document belong to one instance, and all instances must agree on which one. So the share is computed
from the document's `_id`, as servers compare it, or from the collection's UUID for events that must stay in order even
if they are of different documents.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """One of the `parts` shares into which all documents are divided; `number`, from 0, says which one.

    One instance applies all change events of the documents in one share.
    """

    number: int = 0
    parts: int = 1

    def has(self, collection: bytes, group: Hashable) -> bool:
        """Return whether this share includes a group of documents (see `dispatch.group_of`) of a collection.

        `collection` is the UUID of the collection. `group` is None, in place of `IN_ORDER`, for the documents of the
        collection whose events must all stay in order: one instance applies all these events.
        """
        if self.parts == 1:
            return True
        # Without a group, the collection's UUID decides, so that the same instance gets all these documents.
        number = zlib.crc32(collection) if group is None else stable_hash(group)
        return number % self.parts == self.number


def share_of(instance: str, instances: Sequence[str]) -> Share:
    """Return the share of `instance`, one of `instances`; a share with all documents if `instances` is empty."""
    return Share(instances.index(instance), len(instances)) if instances else Share()


def stable_hash(value: Hashable) -> int:
    """Return a hash that is equal for equal values in every process.

    `value` is a number, bytes, or a tuple of such values. Python's own hash is stable for numbers, but not for bytes.
    """
    if isinstance(value, tuple):
        mixed = b"".join(stable_hash(each).to_bytes(8, "big") for each in value)
        return zlib.crc32(mixed)
    if isinstance(value, bytes):
        return zlib.crc32(value)
    return hash(value) & 0xFFFFFFFF
