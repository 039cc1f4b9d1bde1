"""Finds every document in which two collections differ, byte for byte and in bounded memory.

Both collections are read in the order of their `_id` index and merged. The server decides which of two different `_id`s
comes first, so this module needs no rules for types and collations. Natural orders can be compared, too.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

# Decoding must not fail for any stored value, such as a date out of range or a string cut within a character.
LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
RAW = CodecOptions(
    RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)

DOCUMENTS_A_BATCH = 10_000
IDS_A_QUESTION = 100
_LENGTH = Struct("<i")  # every BSON document begins with its own length

AnyCollection = Collection[Any]


@dataclass
class DocumentStream:
    """The documents of one collection as BSON bytes, read in batches, with counts of the documents and bytes read."""

    # The batches that are not read from the cursor yet.
    batches: Iterator[bytes]
    # The documents that are read, but not removed from this queue by the caller yet.
    waiting: deque[bytes] = field(default_factory=deque)
    # The numbers of documents and bytes read so far.
    documents: int = 0
    size: int = 0

    def fill(self) -> deque[bytes]:
        """Return the documents that were read but not compared yet; if there are none, first read another batch.

        The result is empty only at the end of the collection. The caller removes the compared documents from it.
        """
        while not self.waiting and (batch := next(self.batches, None)) is not None:
            self.waiting.extend(_split(batch))
            self.documents += len(self.waiting)
            self.size += len(batch)
        return self.waiting


def any_collection(database: Database[Any], name: str) -> AnyCollection:
    """Return the collection with this name, without the driver's check of the name.

    Servers accept some names that the driver refuses, such as `a..b`.
    """
    collection = database["any"]
    collection._name = name
    collection._full_name = f"{database.name}.{name}"
    return collection


def by_id(collection: AnyCollection) -> DocumentStream:
    """Return a stream of all documents in the order of `_id`."""
    return DocumentStream(
        collection.find_raw_batches(
            sort=[("_id", 1)], hint=[("_id", 1)], batch_size=DOCUMENTS_A_BATCH
        )
    )


def natural(collection: AnyCollection) -> DocumentStream:
    """Return a stream of all documents in natural (storage) order."""
    return DocumentStream(
        collection.find_raw_batches(hint=[("$natural", 1)], batch_size=DOCUMENTS_A_BATCH)
    )


def document_differences(
    collection: AnyCollection, source: DocumentStream, destination: DocumentStream
) -> Iterator[str]:
    """Yield a sentence for each document that is not the same on both clusters. Both streams are in the order of `_id`.

    `collection` is the collection on the source. Its server and its collation decide which of two `_id`s comes first.
    """
    for left, right in _unequal(collection, source, destination):
        if right is None:
            yield f"_id {_id_text(left)} missing on destination"
        elif left is None:
            yield f"_id {_id_text(right)} extra on destination"
        else:
            yield f"_id {_id_text(left)} content differs: {_what_differs(left, right)}"


def order_difference(source: DocumentStream, destination: DocumentStream) -> Iterator[str]:
    """Yield one sentence for the first position (from 0) at which the streams differ; nothing if they do not differ.

    Both streams are in natural order, and their collections contain the same documents.
    """
    position = 0
    while (left := source.fill()) and (right := destination.fill()):
        position += _skip_equal(left, right)
        if left and right:
            yield (
                f"natural order differs at document {position}: "
                f"_id {_id_text(left[0])} on source, {_id_text(right[0])} on destination"
            )
            return


def elements(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the top-level fields of a document, each value encoded as BSON, which distinguishes 1, 1.0 and true."""
    return {name: bson.encode({"": value}) for name, value in document.items()}


def different_names(left: Mapping[str, bytes], right: Mapping[str, bytes]) -> list[str]:
    """Return the names of the fields that have different values, or that only one of two documents has.

    `left` and `right` are the results of `elements` for the documents.
    """
    names = [*left, *(name for name in right if name not in left)]
    return [name for name in names if left.get(name) != right.get(name)]


def _split(batch: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(batch):
        end = position + _LENGTH.unpack_from(batch, position)[0]
        yield batch[position:end]
        position = end


def _unequal(
    collection: AnyCollection, source: DocumentStream, destination: DocumentStream
) -> Iterator[tuple[Any, Any]]:
    """Yield each pair of documents that have the same `_id` but differ: first the source's, then the destination's.

    If a document is missing on one cluster, None takes its place in the pair.
    """
    while True:
        left, right = source.fill(), destination.fill()
        if left and right:
            _skip_equal(left, right)
            yield from _unequal_heads(collection, left, right)
        elif left:
            yield left.popleft(), None
        elif right:
            yield None, right.popleft()
        else:
            return


def _skip_equal(left: deque[bytes], right: deque[bytes]) -> int:
    skipped = 0
    while left and right and left[0] == right[0]:
        left.popleft()
        right.popleft()
        skipped += 1
    return skipped


def _unequal_heads(
    collection: AnyCollection, left: deque[bytes], right: deque[bytes]
) -> Iterator[tuple[Any, Any]]:
    if not left or not right:
        return
    only_left, only_right = _run_lengths(collection, left, right)
    yield from ((left.popleft(), None) for _ in range(only_left))
    yield from ((None, right.popleft()) for _ in range(only_right))
    if not only_left and not only_right:
        yield left.popleft(), right.popleft()


def _run_lengths(
    collection: AnyCollection, left: deque[bytes], right: deque[bytes]
) -> tuple[int, int]:
    """Return how many documents of `left` come before the first of `right`, and of `right` before the first of `left`.

    `left` and `right` are the documents that were read but not compared yet, in the order of `_id`. At most
    `IDS_A_QUESTION` documents of each are examined. Both numbers are 0 if the first `_id`s are equal, even with
    different bytes, such as 1 and 1.0.
    """
    if bson.encode({"": _id(left[0])}) == bson.encode({"": _id(right[0])}):
        return 0, 0
    counts = {"left": _count_before(left, right[0]), "right": _count_before(right, left[0])}
    answer = collection.find_one({}, {"_id": 0, **counts})
    if answer is None:
        raise RuntimeError(
            f"{collection.full_name} was emptied while it was compared; stop all writes, then try again"
        )
    return answer["left"], answer["right"]


def _count_before(documents: deque[bytes], bound: bytes) -> dict[str, Any]:
    ids = [_id(document) for document in islice(documents, IDS_A_QUESTION)]
    before = {"$lt": ["$$this", {"$literal": _id(bound)}]}
    return {"$size": {"$filter": {"input": {"$literal": ids}, "cond": before}}}


def _id(document: bytes) -> Any:
    return RawBSONDocument(document, RAW)["_id"]


def _id_text(document: bytes) -> str:
    return dumps(bson.decode(document, LENIENT)["_id"], json_options=RELAXED_JSON_OPTIONS)


def _what_differs(left: bytes, right: bytes) -> str:
    ours, theirs = (elements(RawBSONDocument(document, RAW)) for document in (left, right))
    if names := different_names(ours, theirs):
        return ", ".join(names)
    # The fields have another order, or decoding hides the difference: a repeated name, or types with the same value.
    return "order of fields" if list(ours) != list(theirs) else "bytes only"
