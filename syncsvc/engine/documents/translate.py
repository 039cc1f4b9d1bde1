"""From change events to write statements, in bytes. Pure.

Events of one document that meet in one batch are folded into one outcome, so that every document takes one statement
of one command. Values are copied as bytes, never decoded.

Updates are replayed by the oplog's own diff (`$_internalApplyOplogUpdate`, with `showRawUpdateDescription` of the
stream) where both servers offer it: exact for every field name, nested truncation and order of fields. A diff that does
nothing but set fields that were there is a `$set`, at two thirds of the cost: such fields keep their places either way,
and one that the destination lacks, because it holds a later state of the document, is taken away by a later event.

Where the servers do not offer it, the document is read again from the source: the public description of an update is
ambiguous (`a.b` is a field or a path), and does not tell whether a field keeps its place or moves to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat

from verifier.cluster import rawbson
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.keys import is_only_id
from verifier.cluster.rawbson import DOCUMENT, Buffer, document, int32, int32_at, single, value_size

# A pipeline may have 1,000 stages; a statement, which has the key, too, must stay below 16 MB.
_MOST_STAGES = 100
_MOST_BYTES = 8 << 20

_DOLLAR = ord("$")
_ZERO_TIMESTAMP = bytes(8)
_NINE_ZEROS = bytes(9)
_TIMESTAMP = bytes([rawbson.TIMESTAMP])
_UPSERT = b"\x08upsert\0\x01"

# How an oplog entry begins whose update is a diff: `{$v: 2, diff: {`.
_DIFF_HEAD = b"\x10$v\0" + int32(2) + b"\x03diff\0"
_DIFF = 4 + len(_DIFF_HEAD)

# `single` twice, for the hot path.
_DIFF_STAGE = b"%b\x03$_internalApplyOplogUpdate\0%b\x03oplogUpdate\0%b\0\0"
_DIFF_AROUND, _ENTRY_AROUND = len(_DIFF_STAGE % (b"1234", b"1234", b"")), 4 + 13 + 1

# Fields with their types, names and values as a document holds them, by their paths. Each name is its whole path.
Sets = dict[bytes, bytes]


@dataclass(slots=True)
class Outcome:
    """What a batch of events makes of one document.

    Either the document is `deleted`, or it is to be read again (`refetch`), or `document` (its full bytes, if known) is
    written and then `stages` are run on it. `sets` are the fields that the stages set, by path, where that is all that
    they do. `new` tells that the events begin with an insert. `size` is of document and stages, in bytes.
    """

    key: bytes
    document: bytes | None = None
    stages: list[bytes] = field(default_factory=list)
    sets: Sets | None = None
    deleted: bool = False
    refetch: bool = False
    new: bool = False
    size: int = 0


def fold(before: Outcome | None, event: DataEvent) -> Outcome:
    """The outcome of an event after the outcome of the events before it in the same batch."""
    kind = event.kind
    if before is not None and _moves(before, event):
        return Outcome(event.key, refetch=True)
    if kind is DataKind.UPDATE:
        return _updated(before, event)
    if kind is DataKind.DELETE:
        if before is not None and not before.new and not is_only_id(event.key):
            # The document may have had another key before, by which the destination knows it.
            return Outcome(event.key, refetch=True)
        return Outcome(event.key, deleted=True)
    if kind is DataKind.UNTOLD:
        return Outcome(event.key, refetch=True)
    new = kind is DataKind.INSERT if before is None else before.new
    return Outcome(event.key, document=event.body, new=new, size=len(event.body))


def _moves(before: Outcome, event: DataEvent) -> bool:
    """Whether the document may change shards on the source: which of the events is the later one, nobody knows then."""
    if before.key == event.key:
        return False
    return not (is_only_id(before.key) and is_only_id(event.key))


def _updated(outcome: Outcome | None, event: DataEvent) -> Outcome:
    if outcome is None:
        outcome = Outcome(event.key, sets={})
    outcome.size += len(event.body)
    # An update of a deleted document cannot be: whatever it is, the source knows better.
    if outcome.refetch or outcome.deleted or not event.raw_diff or outcome.size > _MOST_BYTES:
        return Outcome(event.key, refetch=True)
    outcome.stages.append(diff_stage(event.body))
    if outcome.sets is not None:
        outcome.sets = _both(outcome.sets, field_sets(event.body))
    if outcome.sets is None and len(outcome.stages) > _MOST_STAGES:
        return Outcome(event.key, refetch=True)
    return outcome


def diff_stage(entry: bytes) -> bytes:
    """The pipeline stage that replays an update of the oplog."""
    size = len(entry)
    return _DIFF_STAGE % (int32(size + _DIFF_AROUND), int32(size + _ENTRY_AROUND), entry)


def field_sets(entry: bytes) -> Sets | None:
    """The fields that an update of the oplog sets, if it does nothing but set fields that were there.

    None also where a path would be ambiguous, or a field is named twice.
    """
    if not entry.startswith(_DIFF_HEAD, 4):
        return None
    found: Sets = {}
    return found if _collect(entry, _DIFF, b"", found) else None


def _collect(raw: bytes, at: int, path: bytes, found: Sets) -> bool:
    """Add the fields that the diff at `at` sets in the document of that path; False where it is not so simple.

    A diff of a document has `u` with fields that were there, `i` with fields that move to the end, `d` with fields that
    go, and `sx` with the diff of a document or array in field x; that of an array begins with `a: true`.
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


def _collect_fields(raw: bytes, at: int, path: bytes, found: Sets) -> bool:
    end = at + int32_at(raw, at)[0] - 1
    at += 4
    while at < end:
        start = raw.index(0, at + 1) + 1
        name = raw[at + 1 : start - 1]
        if not _unambiguous(name):
            return False
        stop = start + value_size(raw, raw[at], start)
        # At the top the bytes are those of the diff.
        field = raw[at:stop] if not path else raw[at : at + 1] + path + raw[at + 1 : stop]
        if found.setdefault(path + name, field) is not field:
            return False
        at = stop
    return True


def _unambiguous(name: bytes) -> bool:
    """Whether a part of a path names a field of that name, and nothing else."""
    return name != b"" and b"." not in name and name[0] != _DOLLAR


def _both(earlier: Sets, later: Sets | None) -> Sets | None:
    """What one `$set` does for two; None where one sets a field within a field that the other sets."""
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


def _set(sets: Sets) -> bytes:
    return single(DOCUMENT, b"$set", document(*sets.values()))


def literal_stage(document: bytes) -> bytes:
    """The stage that makes a document be exactly this one, whatever is in it."""
    return single(DOCUMENT, b"$replaceWith", single(DOCUMENT, b"$literal", document))


def insertable(outcome: Outcome) -> bool:
    """Whether an insert of the document alone does it, as long as none of its `_id` is there."""
    return (
        outcome.new
        and not outcome.stages
        and outcome.document is not None
        and not holds_zero_timestamp(outcome.document)
    )


def update_statement(outcome: Outcome, literal: bool = False) -> bytes:
    """The statement of an update command for an outcome that is not a delete.

    A replacement is cheaper than a pipeline, but the server refuses some documents as one (names with a leading dollar)
    and alters others (zero timestamps). With `literal` the form that every document passes is used.
    """
    query = b"\x03q\0" + outcome.key
    if outcome.sets:
        return document(query, b"\x03u\0", _set(outcome.sets))
    if outcome.document is None:
        return document(query, _pipeline(outcome.stages))
    if literal or outcome.stages or holds_zero_timestamp(outcome.document):
        pipeline = _pipeline([literal_stage(outcome.document), *outcome.stages])
        return document(query, pipeline, _UPSERT)
    return document(query, b"\x03u\0", outcome.document, _UPSERT)


def delete_statement(outcome: Outcome) -> bytes:
    """The statement of a delete command."""
    return document(b"\x03q\0", outcome.key, b"\x10limit\0", int32(1))


def holds_zero_timestamp(document: bytes) -> bool:
    """Whether a top-level field other than `_id` is Timestamp(0, 0).

    The server puts its own time in the place of such a value when it inserts or replaces the document as it is.
    """
    if _NINE_ZEROS not in document:
        return False
    return any(
        element.kind == rawbson.TIMESTAMP
        and element.name != b"_id"
        and document[element.start : element.end] == _ZERO_TIMESTAMP
        for element in rawbson.elements(document)
    )


def zero_timestamp_documents(block: bytes, documents: Sequence[Buffer]) -> set[int]:
    """Which of the documents, which stand end to end in `block`, hold a top-level Timestamp(0, 0).

    Only documents whose bytes could hold such a field are walked.
    """
    found: set[int] = set()
    numbered = enumerate(accumulate(map(len, documents)))
    end = 0
    for suspect in _zero_timestamps(block):
        if suspect < end:
            # The same document as before, which was walked already.
            continue
        while suspect >= end:
            number, end = next(numbered)
        if holds_zero_timestamp(bytes(documents[number])):
            found.add(number)
    return found


def _zero_timestamps(block: bytes) -> Iterator[int]:
    """Where the bytes look like a Timestamp(0, 0): its type, a name, the zero that ends the name, eight zeros.

    Looks for the type, which is rare: zeros are everywhere. All such bytes before one zero share what follows it.
    """
    at = block.find(_TIMESTAMP)
    while at >= 0 and (name_end := block.find(b"\0", at + 1)) >= 0:
        if block.startswith(_NINE_ZEROS, name_end):
            yield name_end
        at = block.find(_TIMESTAMP, name_end + 1)
