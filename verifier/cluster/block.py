"""Holds BSON documents end to end in one byte string, as a write command sends them.

The string is split into documents only where that is necessary: splitting a page of small documents took a third of the
CPU time of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import bson
from bson.errors import InvalidBSON

from verifier.cluster.rawbson import Buffer, MalformedBson, array_documents, int32_at


def _join(array: memoryview) -> bytes:
    return b"".join(array_documents(bytes(array), 0))


# The driver's own function is faster, because it is written in C. It is undocumented, so it may be missing.
_joined: Callable[[memoryview], bytes] = getattr(bson, "_array_of_documents_to_buffer", _join)


@dataclass(frozen=True, slots=True)
class Block:
    """A number of BSON documents: `raw` contains the bytes of `count` documents, in order."""

    raw: bytes
    count: int

    @classmethod
    def of(cls, documents: Iterable[Buffer]) -> Self:
        listed = [*documents]
        return cls(b"".join(listed), len(listed))

    @classmethod
    def of_array(cls, array: memoryview) -> Self:
        """Build a block from a BSON array that contains only documents. Raises MalformedBson."""
        try:
            raw = _joined(array)
        except InvalidBSON as error:
            raise MalformedBson(f"the value is not a BSON array of documents: {error}") from error
        # Besides the documents, the array contains its length, the headers of its elements, and a zero byte.
        return cls(raw, _number_of_headers(len(array) - 5 - len(raw)))

    def documents(self) -> list[memoryview]:
        """Return the bytes of each document, without copying them. Raises MalformedBson."""
        view = memoryview(self.raw)
        return [view[begin:end] for begin, end in pairwise([*self._starts(), len(view)])]

    def first(self) -> bytes:
        """Return the first document. The block must not be empty."""
        return self.raw[: int32_at(self.raw, 0)[0]]

    def last(self) -> bytes:
        """Return the last document. The block must not be empty. Raises MalformedBson.

        This reads the lengths of all documents. A search from the end is not safe: a value can look like a document.
        """
        return self.raw[self._starts()[-1] :]

    def without_first(self) -> Self:
        """Return a block with all documents but the first. This block must not be empty."""
        return type(self)(self.raw[len(self.first()) :], self.count - 1)

    def _starts(self) -> list[int]:
        """Return the offset of each document. Raises MalformedBson if a document's length is less than 5 bytes."""
        raw, end = self.raw, len(self.raw)
        starts: list[int] = []
        at = 0
        while at < end:
            size = int32_at(raw, at)[0]
            if size < 5:
                raise MalformedBson(
                    f"the document at byte {at} has an invalid length of {size} bytes"
                )
            starts.append(at)
            at += size
        return starts


def _number_of_headers(size: int) -> int:
    """Return the number of elements of a BSON array whose element headers take up `size` bytes in total.

    A header is the type byte, the number of the element as text, and a zero byte. Raises MalformedBson if no number of
    elements results in this size.
    """
    number, header, alike = 0, 3, 10
    while size > header * alike:
        size -= header * alike
        number += alike
        header += 1
        alike = 9 * 10 ** (header - 3)
    if size % header:
        raise MalformedBson("the elements of a BSON array are not numbered from 0 on")
    return number + size // header
