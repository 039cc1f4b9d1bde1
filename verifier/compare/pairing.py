"""Compares the documents of one collection, both sides read in `_id` order.

The fast path compares whole replies as bytes. Where a pair of replies differs, its documents are matched by the bytes
of `_id`. What stays unmatched, or differs, is only a suspect: whoever calls looks at it again before it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

from verifier.cluster import rawbson
from verifier.cluster.keys import id_only
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawcursor import Page
from verifier.compare.mismatch import Difference, DocumentMismatch, FieldDifference

# How many bytes of unmatched documents are kept, on both sides together, before they become suspects.
_PENDING_BYTES = 32 << 20


class DocumentPairing:
    """Matches the documents of two streams of pages. `documents` and `size` (bytes) count what the source gave."""

    def __init__(self) -> None:
        self.documents = 0
        self.size = 0
        self._pending: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        self._pending_bytes = 0

    def suspects(self, source: Iterator[Page], destination: Iterator[Page]) -> Iterator[bytes]:
        """The keys of the documents that were not found equal on both sides."""
        for source_page, destination_page in zip_longest(source, destination):
            self._count(source_page)
            if self._same(source_page, destination_page):
                continue
            yield from self._match(0, source_page)
            yield from self._match(1, destination_page)
            if self._pending_bytes > _PENDING_BYTES:
                yield from self._give_up()
        yield from self._give_up()

    def _count(self, page: Page | None) -> None:
        if page is not None:
            documents = page.documents()
            self.documents += len(documents)
            self.size += sum(map(len, documents))

    def _same(self, source: Page | None, destination: Page | None) -> bool:
        if source is None or destination is None or self._pending_bytes:
            return False
        return source.array_bytes == destination.array_bytes

    def _match(self, side: int, page: Page | None) -> Iterator[bytes]:
        mine, others = self._pending[side], self._pending[1 - side]
        for view in page.documents() if page is not None else ():
            document = bytes(view)
            key = id_only(document)
            other = others.pop(key, None)
            if other is None:
                mine[key] = document
                self._pending_bytes += len(document)
                continue
            self._pending_bytes -= len(other)
            if other != document:
                yield key

    def _give_up(self) -> Iterator[bytes]:
        keys = {**self._pending[0], **self._pending[1]}
        for pending in self._pending:
            pending.clear()
        self._pending_bytes = 0
        yield from keys


def compare_document(
    namespace: Namespace, key: bytes, source: bytes | None, destination: bytes | None
) -> DocumentMismatch | None:
    """The mismatch between the two sides' documents with that key; None when they are equal, or missing on both."""
    if source == destination:
        return None
    if destination is None:
        return DocumentMismatch(namespace, key, Difference.MISSING)
    if source is None:
        return DocumentMismatch(namespace, key, Difference.EXTRA)
    fields = tuple(_differing_fields(source, destination))
    return DocumentMismatch(namespace, key, Difference.CONTENT, fields)


def _differing_fields(source: bytes, destination: bytes) -> Iterator[FieldDifference]:
    values = [
        [(each.name, each.kind, document[each.start : each.end]) for each in elements]
        for document, elements in (
            (source, rawbson.elements(source)),
            (destination, rawbson.elements(destination)),
        )
    ]
    counts = [Counter(each) for each in values]
    names = {name for name, *_ in (counts[0] - counts[1]) + (counts[1] - counts[0])}
    for name in sorted(names):
        yield FieldDifference(name.decode(errors="replace"), "different")
    if not names:
        yield FieldDifference("", "order of fields")
