"""Which part of all change events one instance applies. Pure.

All events of one document belong to one instance, and all instances must agree on which: so the number is made of the
document's `_id`, as servers compare it, and of nothing that differs from process to process.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """The part with that number, of so many."""

    number: int = 0
    parts: int = 1

    def has(self, collection: bytes, group: Hashable) -> bool:
        """Whether that group of a collection's documents is of this part; None is all documents together."""
        if self.parts == 1:
            return True
        # Of a group that is wholly one instance's, the collection decides.
        number = zlib.crc32(collection) if group is None else stable_hash(group)
        return number % self.parts == self.number


def share_of(instance: str, instances: Sequence[str]) -> Share:
    """The part of one of these instances; everything where there are none."""
    return Share(instances.index(instance), len(instances)) if instances else Share()


def stable_hash(value: Hashable) -> int:
    """Equal for equal values in every process, as Python's own hash is of numbers, but not of bytes."""
    if isinstance(value, tuple):
        mixed = b"".join(stable_hash(each).to_bytes(8, "big") for each in value)
        return zlib.crc32(mixed)
    if isinstance(value, bytes):
        return zlib.crc32(value)
    return hash(value) & 0xFFFFFFFF
