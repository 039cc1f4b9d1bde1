"""Reads the documents of one range of a collection in `_id` order, resumably.

The resume point is an `_id`, which is valid on every member of a replica set and on every router. Routers of a sharded
cluster merge the documents of all shards, filter out orphaned documents, and have no record IDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo.errors import NetworkTimeout

from syncsvc.source.scanned import ScannedCollection
from verifier.cluster import failures
from verifier.cluster.block import Block
from verifier.cluster.keys import id_only
from verifier.cluster.lookup import LONGEST_BOUND, among
from verifier.cluster.namespace import Namespace
from verifier.cluster.pinning import Pin
from verifier.cluster.ranges import LAST, Part, Range, end_of_part, part_after_timeout
from verifier.cluster.rawcursor import RawCursor, resilient_pages
from verifier.cluster.renamed import follow_renames
from verifier.runtime.retry import Temporary
from verifier.runtime.tasks import StopToken

_BY_ID = {"_id": 1}

# Called for each page with two arguments: the current name of the collection; and the keys of the page in order, after
# the last key before the page if it is known. A key is a document with only an `_id`.
CheckKeys = Callable[[Namespace, Sequence[bytes]], None]


class RangeScan:
    """One pass over the range `portion` of a collection, from its beginning or from a resume point in it.

    The scan follows renames of the collection, except on a source before 6.0, which is read by name. `check` is called
    with the keys of each page (see `CheckKeys`), and may raise an error. If the source needs too long to find a
    document that matches the query of the collection, the rest of the range is searched in parts.
    """

    def __init__(
        self,
        scanned: ScannedCollection,
        portion: Range,
        resume_point: bytes | None,
        stop: StopToken,
        check: CheckKeys | None = None,
    ) -> None:
        self._scanned = scanned
        self._range = portion
        self._resume_point = resume_point
        self._stop = stop
        self._check = check
        self._previous = resume_point
        # The lower bound of what is left to read; None at the beginning of the range.
        self._lower = resume_point
        self._reopened = False
        # The size of the parts, None if the range is read as a whole; and the upper bound of the part that is read now,
        # None if this part is the last one.
        self._part: Part | None = None
        self._end: bytes | None = None
        # Whether a second read must return the document whose `_id` is MaxKey, and whether that second read has begun.
        self._leaves_out_last = False
        self._only_last = False

    def pages(self) -> Iterator[tuple[Block, bytes | None]]:
        """Yield the documents of each page, with the resume point after the page; None before the first usable `_id`.

        A resume point is a document with only an `_id`. A page may be empty. After a temporary failure, the scan
        continues at the last resume point by itself. An `_id` that is too long for a bound of a range is not used as a
        resume point: the documents after the previous resume point may then be returned again.

        Raises CollectionGone, the errors of `check`, and the driver's errors.
        """
        return follow_renames(self._scanned.namespace, self._pages)

    def _pages(self, namespace: Namespace) -> Iterator[tuple[Block, bytes | None]]:
        if not self._only_last:
            yield from self._read(namespace)
            while self._end is not None:
                assert self._part is not None
                self._lower, self._end, self._part = self._end, None, self._part.larger()
                yield from self._read(namespace)
            self._only_last = self._leaves_out_last
        if self._only_last:
            yield from self._read(namespace)

    def _read(self, namespace: Namespace) -> Iterator[tuple[Block, bytes | None]]:
        for page in resilient_pages(lambda: self._open(namespace), self._classify, self._stop):
            block = page.block()
            last = id_only(block.last()) if block.count else b""
            if block.count and self._reopened:
                self._reopened = False
                if id_only(block.first()) == self._resume_point:
                    block = block.without_first()
            if block.count:
                self._move_on(namespace, block, last)
            yield block, self._resume_point

    def _move_on(self, namespace: Namespace, block: Block, last: bytes) -> None:
        """Call `check` with the keys of a page (`block`), and advance the resume point to the end of the page.

        `last` is the key of the last document. If it is too long, the resume point is the last key of the page that is
        short enough; if there is none, the resume point stays the same.
        """
        if self._check is not None:
            keys = [id_only(bytes(each)) for each in block.documents()]
            self._check(namespace, keys if self._previous is None else [self._previous, *keys])
        self._previous = last
        if len(last) <= LONGEST_BOUND:
            self._resume_point = self._lower = last
            return
        backwards = (id_only(bytes(each)) for each in reversed(block.documents()))
        fit = (key for key in backwards if len(key) <= LONGEST_BOUND)
        found = next(fit, None)
        if found is not None:
            self._resume_point = self._lower = found

    def _open(self, namespace: Namespace) -> RawCursor:
        # No bound lies after MaxKey, so a scan cannot continue after it: the document with this `_id` is read again.
        self._only_last = self._only_last or self._resume_point == LAST
        self._reopened = self._resume_point is not None
        self._previous = self._resume_point
        pin = Pin(read_preference=self._scanned.read_preference)
        bounds = {} if self._only_last else self._bounds(namespace, pin)
        return self._scanned.open(
            namespace, pin, **self._filter(), **bounds, sort=_BY_ID, hint=_BY_ID
        )

    def _classify(self, error: BaseException) -> Temporary | None:
        if isinstance(error, NetworkTimeout) and self._scanned.query is not None:
            self._part = part_after_timeout(self._part, self._scanned.first_page)
        return failures.lost_cursor(error)

    def _filter(self) -> dict[str, Any]:
        query = self._scanned.query
        queries = [] if query is None else [query]
        if self._only_last:
            queries.append(among([LAST]))
        return {"filter": {"$and": queries}} if queries else {}

    def _bounds(self, namespace: Namespace, pin: Pin) -> dict[str, RawBSONDocument]:
        left = self._range
        if self._lower is not None:
            left = replace(left, lower=self._lower)
        if self._part is not None:
            keys = self._scanned.open(namespace, pin, **self._part.beyond, **left.bounds)
            self._end = end_of_part(keys)
            left = replace(left, upper=self._end or left.upper)
        self._leaves_out_last = left.leaves_out_last
        return left.bounds
