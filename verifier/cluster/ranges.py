"""Portions of a collection: ranges in the order of its `_id` index, and single documents by their keys.

The bounds of a range are those of an index scan (`min`, `max` and `hint` of find), in the index's own order. So every
document is in exactly one of its collection's ranges, regardless of the type of its `_id`. `$gt` and `$lt` would match
one type only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.keys import canonical_id, id_element
from verifier.cluster.lookup import LONGEST_BOUND
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.reading import read
from verifier.cluster.renamed import follow_renames
from verifier.cluster.sampling import largest_sample
from verifier.runtime.tasks import StopToken

# With this many samples per range, the sizes of two ranges usually differ by less than half.
_SAMPLES_A_RANGE = 8
# The maximum number of samples in one call. The server reads a random document for each of them before it returns the
# first one. A slow disk reads about 100 a second, and a call without an answer fails after a minute.
_MOST_SAMPLES = 5_000
# The maximum number of ranges of one collection. Two samples per range are enough for a huge collection, because its
# ranges are read in pages, whatever their sizes.
_MOST_RANGES = _MOST_SAMPLES // 2
# The number of ranges per thread into which a collection is divided. With more than one, all threads end at about the
# same time.
_RANGES_A_THREAD = 2
# Ranges are not made smaller than this just to occupy all threads, because each range needs some commands. In bytes.
_LEAST_RANGE = 8 << 20

# The least number of documents of a part of a range, and the number of keys from which the end of the part is chosen.
_LEAST_PART = 10
_ENDS_OF_A_PART = 10

# The greatest possible key: an `_id` of MaxKey.
LAST = rawbson.single(rawbson.MAX_KEY, b"_id", b"")


@dataclass(frozen=True)
class Range:
    """The documents whose `_id` is between two bounds: `lower` (inclusive) and `upper` (exclusive).

    Each bound is a document with only an `_id`, or None for no bound.
    """

    lower: bytes | None = None
    upper: bytes | None = None

    @property
    def leaves_out_last(self) -> bool:
        """Return whether a scan with `bounds` leaves out the document whose `_id` is MaxKey, although the range has it.

        A scan with only a lower bound ends before MaxKey, and there is no upper bound beyond MaxKey.
        """
        return self.lower is not None and self.upper is None

    @property
    def bounds(self) -> dict[str, RawBSONDocument]:
        """Return the fields `min` and `max` of a `find` that reads the range with a hint of the `_id` index."""
        ends = {"min": self.lower, "max": LAST if self.leaves_out_last else self.upper}
        return {end: RawBSONDocument(key) for end, key in ends.items() if key is not None}


@dataclass(frozen=True)
class Part:
    """The size, in documents, of the parts in which a range is searched for the documents that match a query.

    A server answers only when it has found a matching document or has read the range to its end. This can take longer
    than the driver waits.
    """

    documents: int

    def larger(self) -> Part:
        """Return twice this size, for the parts that follow one that was searched without a timeout."""
        return Part(2 * self.documents)

    @property
    def beyond(self) -> dict[str, Any]:
        """Return the fields of a `find`, without a query, that reads from the `_id` index the first keys after a part.

        The caller adds the bounds of the range. Pass the cursor to `end_of_part`.
        """
        return {
            "projection": {"_id": 1},
            "sort": {"_id": 1},
            "hint": {"_id": 1},
            "skip": self.documents,
            "limit": _ENDS_OF_A_PART,
        }


def part_after_timeout(part: Part | None, page: int) -> Part:
    """Return the size of the parts in which to search a range after a search has timed out.

    `part` is the size of the part that was searched, of which the result is a quarter. If the whole range was searched,
    `part` is None, and the result is `page`, the usual number of documents in a page. The result is at least 10
    documents.
    """
    return Part(max(_LEAST_PART, page if part is None else part.documents // 4))


def end_of_part(cursor: RawCursor) -> bytes | None:
    """Return the upper bound (exclusive) of the first part of a range; None if the part ends with the range.

    The part ends with the range if no document follows, or if none of the next keys can be a bound. `cursor` reads the
    next keys: see `Part.beyond`. Raises the driver's errors.
    """
    with cursor:
        # Ask for more keys than the limit, so that the server closes the cursor.
        page = cursor.read(_ENDS_OF_A_PART + 1)
    keys = [] if page is None else map(bytes, page.documents())
    return next(filter(_is_bound, keys), None)


@dataclass(frozen=True)
class Keys:
    """A portion of a collection: the documents with these keys, which must fit into one query.

    Each key is a document with an `_id`.
    """

    keys: tuple[bytes, ...]


Portion = Range | Keys


def range_bytes(size: int, threads: int, most: int) -> int:
    """Return the size of the ranges in which `threads` threads read a collection of `size` bytes; at most `most` bytes.

    The ranges are small enough to occupy all threads, unless this would make them smaller than 8 MiB.
    """
    return min(most, max(_LEAST_RANGE, size // (_RANGES_A_THREAD * threads)))


def split(
    client: Client,
    namespace: Namespace,
    count: int,
    size: int,
    bytes_a_range: int,
    stop: StopToken,
    uuid: bytes | None = None,
    shards: int = 1,
) -> list[Range]:
    """Divide a whole collection into ranges of about `bytes_a_range` each, at most 2,500 ranges.

    `count` (documents), `size` (bytes) and the number of `shards` that have the collection may be estimates. The server
    samples and sorts the bounds, so they are valid for any collation. With `uuid`, a renamed collection is found;
    CollectionGone is raised if it was dropped. Temporary errors are retried. Raises the driver's other errors, and
    `Cancelled`.
    """
    number = min(_MOST_RANGES, max(1, size // bytes_a_range), max(1, count))
    if number == 1:
        return [Range()]
    wanted = min(_MOST_SAMPLES, number * _SAMPLES_A_RANGE)
    by_lookups = wanted <= largest_sample(count, shards)
    sampled = read(lambda: _sample(client, namespace, wanted, by_lookups, uuid), stop)
    bounds = _evenly(sampled, number)
    return [Range(*pair) for pair in zip([None, *bounds], [*bounds, None])]


def _sample(
    client: Client, namespace: Namespace, wanted: int, by_lookups: bool, uuid: bytes | None
) -> list[bytes]:
    """Return the keys of up to `wanted` random documents of the collection, in the order of its `_id` index.

    With `by_lookups`, first ask the server for a sample by random lookups. Otherwise, or if it cannot draw one, sample
    the keys of the whole `_id` index.
    """

    def keys(sampling: list[dict[str, Any]], **options: Any) -> list[bytes]:
        if uuid is not None:
            options["collectionUUID"] = Binary(uuid, 4)
        return list(follow_renames(namespace, lambda name: _keys(client, name, sampling, options)))

    if by_lookups:
        try:
            return keys([{"$sample": {"size": wanted}}])
        except OperationFailure as error:
            if error.code != failures.NO_MORE_SAMPLES:
                raise
    # Sample only the keys, from the index: whole documents might be too large to sort.
    only_keys = [{"$project": {"_id": 1}}, {"$sample": {"size": wanted}}]
    return keys(only_keys, hint={"_id": 1})


def _keys(
    client: Client, namespace: Namespace, sampling: list[dict[str, Any]], options: dict[str, Any]
) -> Iterator[bytes]:
    command = {
        "aggregate": namespace.collection,
        "pipeline": [*sampling, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}],
        "allowDiskUse": True,
        **options,
    }
    with RawCursor(client, namespace.database, command) as cursor:
        for page in cursor.pages():
            yield from map(bytes, page.documents())


def _evenly(sampled: list[bytes], number: int) -> list[bytes]:
    """Return at most `number - 1` different bounds, evenly spread over the sampled keys."""
    fit = [*filter(_is_bound, sampled)]
    picked = (fit[index * len(fit) // number] for index in range(1, number) if fit)
    # Documents on different shards can have equal keys of different types, such as 1 and 1.0.
    return list({canonical_id(key): key for key in picked}.values())


def _is_bound(key: bytes) -> bool:
    """Return whether a key can be the bound between two ranges.

    Such a key has at most `LONGEST_BOUND` bytes, and is neither MinKey nor MaxKey, the lowest and the highest key.
    """
    ends = (rawbson.MIN_KEY, rawbson.MAX_KEY)
    return len(key) <= LONGEST_BOUND and id_element(key).kind not in ends
