"""From change events to write statements, in bytes. Pure.

Events of one document that meet in one batch are folded into one outcome, so that every document takes one statement
of one command. Values are copied as bytes, never decoded.

Updates are replayed by the oplog's own diff (`$_internalApplyOplogUpdate`, with `showRawUpdateDescription` of the
stream) where both servers offer it: exact for every field name, nested truncation and order of fields. Otherwise by
`$setField` and `$unsetField` of top-level fields, which are exact too; where an update names anything deeper, its paths
are ambiguous (`a.b` is a field or a path), and the document is read again from the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from verifier.cluster import rawbson
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.rawbson import DOCUMENT, STRING, Buffer, int32, single

# A pipeline may have 1,000 stages; a statement must stay well below 16 MB.
_MOST_STAGES = 100
_MOST_STAGE_BYTES = 4 << 20

_ZERO_TIMESTAMP = bytes(8)
_NINE_ZEROS = bytes(9)
_TIMESTAMP = bytes([rawbson.TIMESTAMP])
_UPSERT = b"\x08upsert\0\x01"


@dataclass(slots=True)
class Outcome:
    """What a batch of events makes of one document.

    Either the document is `deleted`, or it is to be read again (`refetch`), or `document` (its full bytes, if known) is
    written and then `stages` are run on it. `size` is in bytes.
    """

    key: bytes
    document: bytes | None = None
    stages: list[bytes] = field(default_factory=list)
    deleted: bool = False
    refetch: bool = False
    size: int = 0


def fold(before: Outcome | None, event: DataEvent) -> Outcome:
    """The outcome of an event after the outcome of the events before it in the same batch."""
    if event.kind is DataKind.DELETE:
        return Outcome(event.key, deleted=True)
    if event.kind is DataKind.UNTOLD:
        return Outcome(event.key, refetch=True)
    if event.kind is not DataKind.UPDATE:
        return Outcome(event.key, document=event.body)
    outcome = before or Outcome(event.key)
    if outcome.refetch or outcome.deleted:
        # An update of a deleted document cannot be: whatever it is, the source knows better.
        return Outcome(event.key, refetch=True)
    stages = update_stages(event)
    if stages is None:
        return Outcome(event.key, refetch=True)
    outcome.stages.extend(stages)
    outcome.size += len(event.body)
    if len(outcome.stages) > _MOST_STAGES or outcome.size > _MOST_STAGE_BYTES:
        return Outcome(event.key, refetch=True)
    return outcome


def update_stages(event: DataEvent) -> list[bytes] | None:
    """The pipeline stages that replay an update; None where only the source's document can tell."""
    if event.raw_diff:
        diff = single(DOCUMENT, b"oplogUpdate", event.body)
        return [single(DOCUMENT, b"$_internalApplyOplogUpdate", diff)]
    return _classic_stages(event.body)


def _classic_stages(description: bytes) -> list[bytes] | None:
    parts = {element.name: element for element in rawbson.elements(description)}
    truncated = parts.get(b"truncatedArrays")
    if truncated is not None and truncated.end - truncated.start > 5:
        return None
    stages: list[bytes | None] = []
    for name in _removed_names(description, parts.get(b"removedFields")):
        stages.append(_field_stage(b"$unsetField", name, b""))
    updated = parts.get(b"updatedFields")
    for each in rawbson.elements(description, updated.start) if updated is not None else ():
        value = single(each.kind, b"$literal", description[each.start : each.end])
        stages.append(_field_stage(b"$setField", each.name, b"\x03value\0" + value))
    exact = [stage for stage in stages if stage is not None]
    return exact if len(exact) == len(stages) <= _MOST_STAGES else None


def _removed_names(description: bytes, removed: rawbson.Element | None) -> list[bytes]:
    if removed is None:
        return []
    found = rawbson.elements(description, removed.start)
    return [description[each.start + 4 : each.end - 1] for each in found]


def _field_stage(operator: bytes, name: bytes, value: bytes) -> bytes | None:
    """A stage that sets or removes one top-level field; None for a name that may be a path."""
    if b"." in name:
        return None
    literal = single(STRING, b"$literal", int32(len(name) + 1) + name + b"\0")
    arguments = b"\x03field\0" + literal + b"\x02input\0" + int32(7) + b"$$ROOT\0" + value
    expression = single(DOCUMENT, operator, _document(arguments))
    return single(DOCUMENT, b"$replaceWith", expression)


def _document(fields: bytes) -> bytes:
    return int32(len(fields) + 5) + fields + b"\0"


def _pipeline(stages: Iterable[bytes]) -> bytes:
    array = b"".join(b"\x03%d\0%b" % numbered for numbered in enumerate(stages))
    return b"\x04u\0" + _document(array)


def literal_stage(document: bytes) -> bytes:
    """The stage that makes a document be exactly this one, whatever is in it."""
    return single(DOCUMENT, b"$replaceWith", single(DOCUMENT, b"$literal", document))


def update_statement(outcome: Outcome, literal: bool = False) -> bytes:
    """The statement of an update command for an outcome that is not a delete.

    A replacement is cheaper than a pipeline, but the server refuses some documents as one (names with a leading dollar)
    and alters others (zero timestamps). With `literal` the form that every document passes is used.
    """
    query = b"\x03q\0" + outcome.key
    if outcome.document is None:
        return _document(query + _pipeline(outcome.stages))
    if literal or outcome.stages or holds_zero_timestamp(outcome.document):
        pipeline = _pipeline([literal_stage(outcome.document), *outcome.stages])
        return _document(query + pipeline + _UPSERT)
    return _document(query + b"\x03u\0" + outcome.document + _UPSERT)


def delete_statement(outcome: Outcome) -> bytes:
    """The statement of a delete command."""
    return _document(b"\x03q\0" + outcome.key + b"\x10limit\0" + int32(1))


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
