"""Pairs the documents of one collection, read from both sides in the order of `_id`, and yields the unequal ones.

Both sides are asked for the same number of documents, and whole replies are compared as bytes. As long as the replies
are equal, no document is parsed. If replies differ, they are split: equal documents cancel out, and the others are
matched by the bytes of `_id`. Then the side that is behind is asked for as many documents as the other side is ahead,
until both reach the same key. If one side has read past a key without finding a document, but the other side has a
document with this key, the document is certainly missing on the first side. It is reported and dropped from memory.

On a sharded cluster, several documents may have the same `_id`, each on its own shard, and arrive in any order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from verifier.cluster.keys import id_only
from verifier.cluster.rawcursor import LARGEST_PAGE, PAGE_BYTES, Page, next_page_size
from verifier.compare.documents import Mode, equal
from verifier.compare.order import Order
from verifier.compare.tuning import CheckTuning
from verifier.runtime.tasks import together


class Pages(Protocol):
    """A cursor over documents in the order of `_id`."""

    def read(self, size: int) -> Page | None:
        """Return the next page of up to `size` documents; None after the last page."""


class Unequal(NamedTuple):
    """The two versions of a document that differs; None on the side that lacks it. `key` contains only the `_id`."""

    key: bytes
    source: bytes | None
    destination: bytes | None


class _Side:
    """One side of a pairing: its cursor, its unmatched documents, and the last key of the pages that were parsed."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        # By key; nearly always one document per key.
        self.unmatched: dict[bytes, list[bytes]] = {}
        self.last: bytes | None = None
        self.ended = False

    def read(self, size: int) -> Page | None:
        """Return the next page of up to `size` documents; None after the last page, and if `size` is 0."""
        if not size:
            return None
        page = self.pages.read(size)
        self.ended = page is None
        return page

    @property
    def unmatched_size(self) -> int:
        return sum(len(each) for documents in self.unmatched.values() for each in documents)

    def keep(self, documents: Iterable[bytes]) -> None:
        for each in documents:
            self.unmatched.setdefault(id_only(each), []).append(each)

    def take(self, page: Page | None) -> list[bytes]:
        documents = [] if page is None else [bytes(each) for each in page.documents()]
        if documents:
            self.last = id_only(documents[-1])
        return documents


class Pairing:
    """A comparison of two streams of documents. `first_page` is the number of documents in the first page of each.

    `on_progress` is called each time both sides have reached the same key, and at the end, with the number of documents
    that were read from the source since the last call, and their size in bytes; it is not called for 0 documents. To
    bound memory, a document may be reported as missing on one side although it follows later: the caller must compare
    every reported document again.
    """

    def __init__(
        self,
        source: Pages,
        destination: Pages,
        mode: Mode,
        order: Order,
        on_progress: Callable[[int, int], None],
        tuning: CheckTuning,
        first_page: int | None = None,
    ) -> None:
        self._source = _Side(source)
        self._destination = _Side(destination)
        self._mode = mode
        self._order = order
        self._on_progress = on_progress
        self._read = (0, 0)
        self._tuning = tuning
        self._page_size = min(tuning.most_page, first_page or tuning.first_page)
        # The size in bytes to expect of the next page of each side.
        self.page_bytes = LARGEST_PAGE if first_page == 1 else PAGE_BYTES
        self._equal: Page | None = None
        self._aligned: bytes | None = None

    @property
    def aligned(self) -> bytes | None:
        """Return the last key up to which all documents of both sides are compared; None before the first such key."""
        if self._equal is None:
            return self._aligned
        return id_only(bytes(self._equal.documents()[-1]))

    def step(self) -> list[Unequal] | None:
        """Read the next pages, and return the unequal documents (may be empty); None when both sides have ended.

        Raises the errors of the two cursors and of `order`. After an error, only `aligned` may still be used.
        """
        source, destination = self._source, self._destination
        if source.ended and destination.ended:
            self._report_progress()
            return None
        wanted = self._wanted()
        # Over a slow network, nearly all the time passes while pages are read.
        pages = together(partial(source.read, wanted[0]), partial(destination.read, wanted[1]))
        self.page_bytes = max(PAGE_BYTES, *(each.size for each in pages if each is not None), 0)
        if self._alike(pages[0], pages[1]):
            return []
        documents = source.take(pages[0]), destination.take(pages[1])
        found = [*self._match(*documents), *self._sure(), *self._given_up()]
        if any(documents):
            self._note_aligned()
        return found

    def _wanted(self) -> tuple[int, int]:
        """Return the numbers of documents to request from the source and from the destination; 0 requests nothing."""
        source, destination, size = self._source, self._destination, self._page_size
        if source.ended or destination.ended:
            return (0, size) if source.ended else (size, 0)
        if not (source.unmatched or destination.unmatched):
            return size, size
        if self._is_behind(source, destination):
            return len(destination.unmatched) or size, 0
        if self._is_behind(destination, source):
            return 0, len(source.unmatched) or size
        return size, size

    def _is_behind(self, side: _Side, other: _Side) -> bool:
        if side.last is None or other.last is None:
            return other.last is not None
        return self._order(side.last, other.last)

    def _alike(self, source: Page | None, destination: Page | None) -> bool:
        """Return whether the two pages are equal and no earlier document is unmatched.

        If so, count the documents of the page, report the progress, and set the size of the next page.
        """
        if source is None or destination is None or not source.same_documents(destination):
            return False
        if self._source.unmatched or self._destination.unmatched:
            return False
        count = source.count(self._page_size)
        if count:
            self._equal = source
            self._count(count, source.size)
            self._page_size = next_page_size(source.size, count, most=self._tuning.most_page)
        self._report_progress()
        return True

    def _match(self, source: list[bytes], destination: list[bytes]) -> Iterator[Unequal]:
        self._count(len(source), sum(map(len, source)))
        common = {*source} & {*destination}
        self._source.keep(each for each in source if each not in common)
        self._destination.keep(each for each in destination if each not in common)
        left, right = self._source.unmatched, self._destination.unmatched
        for key in [key for key in left if key in right]:
            for pair in _cancelled(left[key], right[key], self._mode):
                yield Unequal(key, *pair)
            # Keep the documents that are left on one side: a counterpart may follow later. Change the dicts in place to
            # keep their order.
            for side in (left, right):
                if not side[key]:
                    del side[key]

    def _sure(self) -> Iterator[Unequal]:
        """Yield the documents that are certainly missing on the other side, which was already read past their keys.

        Drop these documents from memory.
        """
        yield from (Unequal(*each, None) for each in self._passed(self._source, self._destination))
        for key, document in self._passed(self._destination, self._source):
            yield Unequal(key, None, document)

    def _passed(self, side: _Side, other: _Side) -> Iterator[tuple[bytes, bytes]]:
        keys = list(side.unmatched)
        if not other.ended:
            keys = keys[: self._count_before(keys, other.last)]
        for key in keys:
            for document in side.unmatched.pop(key):
                yield key, document

    def _count_before(self, keys: list[bytes], bound: bytes | None) -> int:
        """Return the number of the sorted keys that come before `bound`; 0 if `bound` is None."""
        if bound is None or not keys or not self._order(keys[0], bound):
            return 0
        if self._order(keys[-1], bound):
            return len(keys)
        return bisect_left(keys, True, key=lambda key: not self._order(key, bound))

    def _given_up(self) -> Iterator[Unequal]:
        source, destination = self._source, self._destination
        if source.unmatched_size + destination.unmatched_size <= self._tuning.unmatched_bytes:
            return
        while source.unmatched:
            key, documents = source.unmatched.popitem()
            yield from (Unequal(key, each, None) for each in documents)
        while destination.unmatched:
            key, documents = destination.unmatched.popitem()
            yield from (Unequal(key, None, each) for each in documents)

    def _note_aligned(self) -> None:
        source, destination = self._source, self._destination
        matched = not (source.unmatched or destination.unmatched)
        if matched and source.last == destination.last and source.last is not None:
            self._aligned, self._equal = source.last, None
            self._report_progress()

    def _count(self, documents: int, size: int) -> None:
        self._read = self._read[0] + documents, self._read[1] + size

    def _report_progress(self) -> None:
        if self._read[0]:
            self._on_progress(*self._read)
            self._read = (0, 0)


def _cancelled(
    source: list[bytes], destination: list[bytes], mode: Mode
) -> Iterator[tuple[bytes, bytes]]:
    """Remove equal documents from both lists. Then pair the remaining documents, and remove and yield the pairs.

    All documents have the same key. If one list is longer, its documents without a partner stay in it.
    """
    for document in list(source):
        same = next((each for each in destination if equal(document, each, mode)), None)
        if same is not None:
            source.remove(document)
            destination.remove(same)
    while source and destination:
        yield source.pop(), destination.pop()
