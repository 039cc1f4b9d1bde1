"""Translates change events to write statements, as raw bytes.

Events of one document in the same batch are folded into one outcome, which usually a single statement applies.
Values are copied as bytes, never decoded.

If both clusters support diffs, an update is applied with the diff from the oplog: the change stream reports the diff
(`showRawUpdateDescription`), and the stage `$_internalApplyOplogUpdate` applies it. This is exact for every field name,
truncated array and order of fields. A diff that only sets existing fields becomes a `$set` instead: this costs a third
less, and the fields keep their places in the document, too. If the destination lacks such a field, because it holds a
later state of the document, the `$set` adds the field, and a later event removes it again.

Otherwise, the document is read again from the source: the public description of an update is ambiguous (`a.b` is a
field or a path), and does not say whether a field keeps its place or moves to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from typing import NamedTuple

from verifier.cluster import rawbson
from verifier.cluster.block import Block
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.keys import id_element, id_only, is_only_id
from verifier.cluster.rawbson import (
    DOCUMENT,
    Buffer,
    document,
    int32,
    int32_at,
    single,
    size_bytes,
    value_size,
)

# The most stages of a pipeline, and the most bytes of an outcome that has stages; beyond them, the document is read
# again. The server's limits are higher: 1,000 stages, and 16 MB for a statement, which includes the key.
_MOST_STAGES = 100
_MOST_BYTES = 8 << 20
# The largest size in bytes of a document and its `_id` together that one statement can write. The driver and the server
# accept 16 kB more than 16 MB, of which 4 kB are left for the rest of the command, or of the oplog entry.
_MOST_TOGETHER = (16 << 20) + (12 << 10)

_DOLLAR = ord("$")
_ZERO_TIMESTAMP = bytes(8)
_NINE_ZEROS = bytes(9)
_TIMESTAMP = bytes([rawbson.TIMESTAMP])
_UPSERT = b"\x08upsert\0\x01"

# Local names: looking up a member of an Enum class takes ten times as long.
_INSERT, _UPDATE, _DELETE = DataKind.INSERT, DataKind.UPDATE, DataKind.DELETE
_UNTOLD, _REREAD = DataKind.UNTOLD, DataKind.REREAD

# The beginning of an oplog entry whose update is a diff: `{$v: 2, diff: {`.
_DIFF_HEAD = b"\x10$v\0" + int32(2) + b"\x03diff\0"
_DIFF = 4 + len(_DIFF_HEAD)

# Two nested calls of `single`, inlined for the hot path.
_DIFF_STAGE = b"%b\x03$_internalApplyOplogUpdate\0%b\x03oplogUpdate\0%b\0\0"
_DIFF_AROUND, _ENTRY_AROUND = len(_DIFF_STAGE % (b"1234", b"1234", b"")), 4 + 13 + 1

# The statement `{q: key, u: {$set: fields}}`, inlined as well.
_SET_STATEMENT = b"%b\x03q\0%b\x03u\0%b\x03$set\0%b%b\0\0\0"
_SET_STATEMENT_AROUND = len(_SET_STATEMENT % (b"1234", b"", b"1234", b"1234", b""))
_SET_AROUND = len(b"1234\x03$set\0" b"1234\0\0")

# Fields by path. A value is the encoded field (type, name and value); its name is the whole path.
Sets = dict[bytes, bytes]


@dataclass(slots=True)
class Outcome:
    """The combined effect of a batch of change events on one document.

    The document is either `deleted`, or to be read again from the source (`refetch`), or written: first `document`, if
    it is not None, and then the updates in `stages`.
    """

    # The document key, or another query that finds the document, as BSON.
    key: bytes
    # The bytes of the full document, if they are known.
    document: bytes | None = None
    # The pipeline stages to run on the document, as BSON.
    stages: list[bytes] = field(default_factory=list)
    # The fields that the stages set, by path; None if the stages may do more than that, or there is a `document`.
    sets: Sets | None = None
    deleted: bool = False
    refetch: bool = False
    # Whether the events begin with an insert. After a deletion or a reread in the batch, this is False.
    new: bool = False
    # The size in bytes of `document` and of the diffs in `stages`. Only `fold` sets it.
    size: int = 0


def fold(before: Outcome | None, event: DataEvent) -> Outcome:
    """Return the combined outcome of `event` and the earlier events of its document in the batch.

    `before` is the outcome of the earlier events; None if there are none. This call may change `before`.
    """
    kind = event.kind
    if before is not None and _moves(before, event):
        return Outcome(event.key, refetch=True)
    if kind is _UPDATE:
        return _updated(before, event)
    if kind is _DELETE:
        if before is not None and not before.new and not is_only_id(event.key):
            # The document may have had another key before, by which the destination knows it.
            return Outcome(event.key, refetch=True)
        return Outcome(event.key, deleted=True)
    if kind in (_UNTOLD, _REREAD):
        return Outcome(event.key, refetch=True)
    new = kind is _INSERT if before is None else before.new
    return Outcome(event.key, document=event.body, new=new, size=len(event.body))


def without_contents(event: DataEvent) -> DataEvent:
    """Return the event without its contents, so that `fold` returns an outcome that rereads the document."""
    if event.kind is DataKind.REREAD:
        return event
    return event._replace(kind=DataKind.UNTOLD, body=b"", raw_diff=False)


def _moves(before: Outcome, event: DataEvent) -> bool:
    """Return whether `event` and the events in `before` may come from different shards, so that their order is unknown.

    They may if their document keys differ, because an update of the shard key may have moved the document to
    another shard. Two keys that contain only `_id` count as equal, even if their bytes differ.
    """
    if before.key == event.key:
        return False
    return not (is_only_id(before.key) and is_only_id(event.key))


def _updated(outcome: Outcome | None, event: DataEvent) -> Outcome:
    if outcome is None:
        outcome = Outcome(event.key, sets={})
    outcome.size += len(event.body)
    # An update should never follow the deletion of its document. If one does, read the document from the source, too.
    if outcome.refetch or outcome.deleted or not event.raw_diff or outcome.size > _MOST_BYTES:
        return Outcome(event.key, refetch=True)
    outcome.stages.append(diff_stage(event.body))
    if outcome.sets is not None:
        outcome.sets = _both(outcome.sets, field_sets(event.body))
    if outcome.sets is None and len(outcome.stages) > _MOST_STAGES:
        return Outcome(event.key, refetch=True)
    return outcome


def diff_stage(entry: bytes) -> bytes:
    """Return, as BSON, the pipeline stage that replays an update. `entry` is its oplog entry: `{$v: 2, diff: ...}`."""
    size = len(entry)
    return _DIFF_STAGE % (int32(size + _DIFF_AROUND), int32(size + _ENTRY_AROUND), entry)


class _Shape(NamedTuple):
    """The structure of a diff: all its bytes except the values that it sets.

    Diffs with the same bytes between their values have the same fields, so only one of them has to be parsed.
    """

    # The ranges of bytes that are not values, and these bytes.
    gaps: list[tuple[int, int]]
    fixed: list[bytes]
    # For each field: its path; its type, path and length as they are encoded; and the range of its value.
    fields: list[tuple[bytes, bytes, int, int]]

    def fits(self, entry: bytes) -> bool:
        return [entry[begin:end] for begin, end in self.gaps] == self.fixed

    def sets(self, entry: bytes) -> Sets:
        return {path: head + entry[begin:end] for path, head, begin, end in self.fields}


# The shape of the last diff of each length, and the length of the longest diff whose shape is kept, in bytes: the shape
# of a diff with many small fields takes some kilobytes, so that all shapes together take less than 10 MB.
_shapes: dict[int, _Shape] = {}
_LONGEST_SHAPE = 400


def field_sets(entry: bytes) -> Sets | None:
    """Return the fields that an update sets, by path; None if the update does not only set existing fields.

    Also returns None if a field is named twice, or if a field name is empty, contains a dot or begins with a dollar
    sign, because its path would be ambiguous. `entry` is the oplog entry of the update. Applications usually repeat a
    few kinds of updates, so the structure of recent entries is remembered.
    """
    shape = _shapes.get(len(entry))
    if shape is None or not shape.fits(entry):
        shape = _shape_of(entry)
        if shape is None:
            return None
        if len(entry) <= _LONGEST_SHAPE:
            _shapes[len(entry)] = shape
    return shape.sets(entry)


def _shape_of(entry: bytes) -> _Shape | None:
    """Parse the oplog entry of an update, and return which bytes of the entry are the values that it sets.

    Return None if the update does not only set existing fields, if a field is named twice, or if a path is ambiguous
    because of the characters in a field name (see `_unambiguous`).
    """
    found: dict[bytes, tuple[bytes, int, int]] = {}
    if not entry.startswith(_DIFF_HEAD, 4) or not _collect(entry, _DIFF, b"", found):
        return None
    bounds = [0, *(bound for _, begin, end in found.values() for bound in (begin, end)), len(entry)]
    gaps = list(zip(bounds[::2], bounds[1::2]))
    fields = [(path, *rest) for path, rest in found.items()]
    return _Shape(gaps, [entry[begin:end] for begin, end in gaps], fields)


def _collect(raw: bytes, at: int, path: bytes, found: dict[bytes, tuple[bytes, int, int]]) -> bool:
    """Fill `found` with the fields that a diff sets: by path, the encoding before the value, and the value's bounds.

    The diff begins at the offset `at` of `raw`, and its paths begin with `path`. Return False if the diff does more
    than set existing fields, names a field twice, or has an ambiguous path (see `_unambiguous`).

    The diff of a document has `u` with changed fields, `i` with fields that move to the end, `d` with removed fields,
    and `sx` with the diff of a document or array in field x. The diff of an array begins with `a: true`.
    """
    end = at + int32_at(raw, at)[0] - 1
    at += 4
    while at < end:
        kind = raw[at]
        start = raw.index(0, at + 1) + 1
        name = raw[at + 1 : start - 1]
        if kind != DOCUMENT:
            return False
        if name == b"u":
            if not _collect_fields(raw, start, path, found):
                return False
        elif name[:1] != b"s" or not _unambiguous(name[1:]):
            return False
        elif not _collect(raw, start, path + name[1:] + b".", found):
            return False
        at = start + int32_at(raw, start)[0]
    return True


def _collect_fields(
    raw: bytes, at: int, path: bytes, found: dict[bytes, tuple[bytes, int, int]]
) -> bool:
    end = at + int32_at(raw, at)[0] - 1
    at += 4
    while at < end:
        start = raw.index(0, at + 1) + 1
        name = raw[at + 1 : start - 1]
        if not _unambiguous(name) or path + name in found:
            return False
        stop = start + value_size(raw, raw[at], start)
        # The bytes that determine the size of the value belong to the shape.
        begin = start + size_bytes(raw[at], stop - start)
        head = raw[at : at + 1] + path + raw[at + 1 : begin]
        found[path + name] = (head, begin, stop)
        at = stop
    return True


def _unambiguous(name: bytes) -> bool:
    """Return whether `name`, a part of a path, can only mean a field, not an operator or a path of several parts."""
    return name != b"" and b"." not in name and name[0] != _DOLLAR


def _both(earlier: Sets, later: Sets | None) -> Sets | None:
    """Merge the fields that two updates set into those of one `$set`; return None if that is impossible.

    It is impossible if `later` is None, or if one update sets a field within a field that the other sets. `earlier` may
    be changed.
    """
    if not earlier or later is None:
        return later
    known = len(earlier)
    earlier.update(later)
    if known < len(earlier) > len(later) and any(map(_is_within_another, earlier, repeat(earlier))):
        return None
    return earlier


def _is_within_another(path: bytes, paths: Sets) -> bool:
    while path := path.rpartition(b".")[0]:
        if path in paths:
            return True
    return False


def _pipeline(stages: Iterable[bytes]) -> bytes:
    array = b"".join(b"\x03%d\0%b" % numbered for numbered in enumerate(stages))
    return b"\x04u\0" + document(array)


def _set_statement(key: bytes, sets: Sets) -> bytes:
    fields = b"".join(sets.values())
    size = len(fields)
    whole = int32(size + len(key) + _SET_STATEMENT_AROUND)
    return _SET_STATEMENT % (whole, key, int32(size + _SET_AROUND), int32(size + 5), fields)


def literal_stage(document: bytes) -> bytes:
    """Return, as BSON, the pipeline stage that replaces a document by exactly `document`."""
    return single(DOCUMENT, b"$replaceWith", single(DOCUMENT, b"$literal", document))


def insertable(outcome: Outcome) -> bool:
    """Return whether an insert alone has the effect of the outcome, if the `_id` does not exist on the destination."""
    return (
        outcome.new
        and not outcome.stages
        and outcome.document is not None
        and not holds_zero_timestamp(outcome.document)
    )


def update_statement(outcome: Outcome, literal: bool = False) -> bytes:
    """Return, as BSON, the statement of an update command that has the effect of `outcome`, which writes a document.

    The statement is an upsert if `outcome.document` is set. A replacement is cheaper than a pipeline, but the server
    refuses some documents in a replacement (names with a leading dollar) and alters others (zero timestamps). So a
    document with zero timestamps, or with `stages`, is written with a pipeline. If the server has refused a document,
    set `literal`, which forces a pipeline.
    """
    if outcome.sets:
        return _set_statement(outcome.key, outcome.sets)
    query = b"\x03q\0" + outcome.key
    if outcome.document is None:
        return document(query, _pipeline(outcome.stages))
    if literal or outcome.stages or holds_zero_timestamp(outcome.document):
        pipeline = _pipeline([literal_stage(outcome.document), *outcome.stages])
        return document(query, pipeline, _UPSERT)
    return document(query, b"\x03u\0", outcome.document, _UPSERT)


def fits_statement(outcome: Outcome) -> bool:
    """Return whether one statement can write the whole document of an outcome.

    An upsert and the oplog entry of an insert contain the `_id` twice, so they can be larger than 16 MB.
    """
    return len(outcome.document or b"") + len(outcome.key) <= _MOST_TOGETHER


def growing_statements(outcome: Outcome) -> tuple[bytes, bytes]:
    """Return, as BSON, two update statements that write a document for which `fits_statement` is False.

    They must be run in this order: the first one reduces the document to its `_id`, or inserts one with only the `_id`;
    the second one adds all other fields. The key of the outcome must have only the `_id`.
    """
    assert outcome.document is not None
    found = id_element(outcome.document)
    begin = found.start - len(b"\x07_id\0")
    others = document(outcome.document[4:begin], outcome.document[found.end : -1])
    entry = document(_DIFF_HEAD, document(b"\x03i\0", others))
    query = b"\x03q\0" + outcome.key
    return (
        document(query, b"\x03u\0", document(), _UPSERT),
        document(query, _pipeline([diff_stage(entry)])),
    )


def delete_statement(outcome: Outcome) -> bytes:
    """Return, as BSON, the statement of a delete command that deletes the document of `outcome`."""
    return document(b"\x03q\0", outcome.key, b"\x10limit\0", int32(1))


def whole(document: Buffer) -> Outcome:
    """Return the outcome that writes a whole document."""
    raw = bytes(document)
    return Outcome(id_only(raw), raw)


def not_insertable(block: Block) -> set[int]:
    """Return the indexes of the documents of a block that an insert would alter or could not write.

    They hold a zero timestamp (see `holds_zero_timestamp`), or are too large for one statement (see `fits_statement`).
    """
    found = zero_timestamp_documents(block)
    # An `_id` is smaller than its document, so only documents larger than half of the limit can be too large.
    half = _MOST_TOGETHER // 2
    if len(block.raw) > half:
        large = ((n, each) for n, each in enumerate(block.documents()) if len(each) > half)
        found.update(n for n, each in large if not fits_statement(whole(each)))
    return found


def holds_zero_timestamp(document: bytes) -> bool:
    """Return whether a top-level field other than `_id` is Timestamp(0, 0).

    When the server inserts such a document or uses it as a replacement, it replaces this value with the current time.
    """
    if _TIMESTAMP not in document or _NINE_ZEROS not in document:
        return False
    return any(
        element.kind == rawbson.TIMESTAMP
        and element.name != b"_id"
        and document[element.start : element.end] == _ZERO_TIMESTAMP
        for element in rawbson.elements(document)
    )


def zero_timestamp_documents(block: Block) -> set[int]:
    """Return the indexes of the documents of a block for which `holds_zero_timestamp` is True.

    Only documents whose bytes could hold such a field are parsed.
    """
    found: set[int] = set()
    suspects = _zero_timestamps(block.raw)
    first = next(suspects, None)
    if first is None:
        return found
    documents = block.documents()
    numbered = enumerate(accumulate(map(len, documents)))
    end = 0
    for suspect in chain([first], suspects):
        if suspect < end:
            # This position is in the document that was parsed last.
            continue
        while suspect >= end:
            number, end = next(numbered)
        if holds_zero_timestamp(bytes(documents[number])):
            found.add(number)
    return found


def _zero_timestamps(block: bytes) -> Iterator[int]:
    """Yield the position of each zero byte that ends a name and may be followed by the value Timestamp(0, 0).

    Such a field consists of a type byte, a name, that zero byte, and eight zero bytes. Searches for the type byte,
    because type bytes are rarer than zeros. If several type bytes precede the same zero byte, its position is yielded
    once.
    """
    at = block.find(_TIMESTAMP)
    while at >= 0 and (name_end := block.find(b"\0", at + 1)) >= 0:
        if block.startswith(_NINE_ZEROS, name_end):
            yield name_end
        at = block.find(_TIMESTAMP, name_end + 1)
