"""A saved check is loaded unchanged; a check that was saved in an unsupported format is refused.

The record of a check keeps a limited number of notes and processes.
"""

from __future__ import annotations

from dataclasses import replace

import bson
import pytest
from bson.timestamp import Timestamp

from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import Amounts, Outcome, Verdict
from verifier.compare.documents import Mode
from verifier.compare.errors import INCOMPATIBLE_METADATA
from verifier.compare.record import (
    FORMATS,
    MOST_NOTES,
    MOST_PROCESSES,
    CheckProcess,
    CheckRecord,
    Request,
    SentCommand,
    Side,
    SideRecord,
    as_document,
    from_document,
)
from verifier.compare.scope import Scope
from verifier.runtime.errors import OperationError

POSITION = Position({"_data": "82"}, Timestamp(5, 1))
NEW = CheckRecord("me", ("a", "b"), Request(), 1.5, SideRecord(POSITION), SideRecord(POSITION))
ENDED = replace(
    NEW,
    request=Request(
        Scope(
            NamespaceFilter(
                ({"database": "d", "collectionsRegex": {"pattern": "^a"}},), ({"database": "e"},)
            ),
            {Namespace("d", "a"): Namespace("x", "y"), Namespace("q", ""): Namespace("r", "")},
        ),
        Mode.IGNORE_FIELD_ORDER,
        bson.encode({"$or": [{"a": 1}, {"b.c": {"$gt": 2}}]}),
    ),
    source=SideRecord(POSITION, Timestamp(9, 2), Timestamp(8, 1), {"insert": 5}),
    generation=7,
    planned=True,
    done=True,
    last_from=6,
    first=Amounts(10, 20, 30, None, 2),
    rechecked=44,
    recheck_seconds=(0.5, 1.5),
    notes=("something",),
    ended=9.75,
    verdict=Verdict(Outcome.INCOMPLETE, ("why",), "Name"),
    first_ended=4.5,
    commands=(SentCommand("check", 1.5, "alice", "10.0.0.9"), SentCommand("writesOff", 2.5)),
    processes=(CheckProcess(1.5, "0.1.0", "h1"),),
)


FILTERS = DocumentFilters({Namespace("d", "c"): bson.encode({"a": {"$gt": Timestamp(1, 2)}})})
SELECTING = replace(NEW, request=Request(source_filters=FILTERS))


@pytest.mark.parametrize("record", [NEW, ENDED, SELECTING])
def test_a_record_is_saved_and_loaded_unchanged(record: CheckRecord) -> None:
    document = bson.decode(bson.encode(as_document(record)))
    assert from_document(document) == record


@pytest.mark.parametrize("number", [FORMATS.oldest - 1, FORMATS.current + 1])
def test_a_record_of_an_unsupported_format_is_refused(number: int) -> None:
    with pytest.raises(OperationError) as raised:
        from_document({**as_document(NEW), "format": number})
    assert raised.value.kind is INCOMPATIBLE_METADATA


def test_the_properties_of_a_record() -> None:
    assert NEW.last is False and ENDED.last is True
    assert NEW.writes_off is False
    assert ENDED.writes_off is False
    both = replace(ENDED, destination=ENDED.source)
    assert both.writes_off is True
    assert both.side(Side.SOURCE) is both.source
    assert both.side(Side.DESTINATION) is both.destination


def test_notes_are_added_once_up_to_a_maximum() -> None:
    noted = ENDED.with_notes(["something", "else", "else"])
    assert noted.notes == ("something", "else")
    names = [f"note {number}" for number in range(MOST_NOTES)]
    full = NEW.with_notes(names)
    assert list(full.notes) == names
    beyond = full.with_notes(["one more"])
    assert list(beyond.notes[:-1]) == names
    assert "further notes are left out" in beyond.notes[-1]
    assert beyond.with_notes(["and another"]) == beyond


def test_a_record_of_an_earlier_version_has_no_commands_and_processes() -> None:
    document = as_document(NEW)
    for name in ("firstEnded", "commands", "processes", "sourceFilters"):
        del document[name]
    assert from_document(document) == NEW


def test_an_earlier_version_continues_no_check_with_queries_of_single_collections() -> None:
    assert as_document(NEW)["format"] == as_document(ENDED)["format"] == 2
    assert as_document(SELECTING)["format"] == FORMATS.current == 3


def test_a_record_keeps_the_first_process_and_the_last_ones() -> None:
    record = NEW
    for number in range(3 * MOST_PROCESSES):
        record = record.with_process(CheckProcess(number, "0.1.0", "h1"))
    kept = [each.at for each in record.processes]
    assert kept == [0, *range(2 * MOST_PROCESSES + 1, 3 * MOST_PROCESSES)]
