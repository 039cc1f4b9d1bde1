"""Change events are translated to statements with exactly their effect.

Documents that a plain insert would change (a zero timestamp at the top level), or that are too large for it, are found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.engine.documents import translate
from syncsvc.engine.documents.translate import (
    Outcome,
    delete_statement,
    diff_stage,
    field_sets,
    fits_statement,
    fold,
    growing_statements,
    holds_zero_timestamp,
    insertable,
    not_insertable,
    update_statement,
    whole,
    zero_timestamp_documents,
)
from tests.unit import documents
from tests.unit.deadlines import no_more_work_than
from tests.unit.documents import Field, document, int32
from verifier.cluster import rawbson
from verifier.cluster.block import Block
from verifier.cluster.events import DataEvent, DataKind

KEY = bson.encode({"_id": 7})
ZERO = Timestamp(0, 0)


def event(kind: DataKind, body: dict[str, Any] | None = None, raw_diff: bool = False) -> DataEvent:
    return DataEvent(kind, b"u" * 16, KEY, bson.encode(body) if body else b"", raw_diff)


def insert(n: int) -> DataEvent:
    return event(DataKind.INSERT, {"_id": 7, "n": n})


def replace(n: int) -> DataEvent:
    return event(DataKind.REPLACE, {"_id": 7, "n": n})


def entry(diff: dict[str, Any]) -> bytes:
    return bson.encode({"$v": 2, "diff": diff})


def diff(n: int) -> DataEvent:
    """Return an update event that adds a field named "n" with the value `n`: only an oplog diff can apply it."""
    return event(DataKind.UPDATE, {"$v": 2, "diff": {"i": {"n": n}}}, raw_diff=True)


def plain_diff(n: int, name: str = "n") -> DataEvent:
    """Return an update event that sets the existing field `name` to `n`: a `$set` can apply it."""
    return event(DataKind.UPDATE, {"$v": 2, "diff": {"u": {name: n}}}, raw_diff=True)


DELETE = event(DataKind.DELETE)
# An update with the documented updateDescription, and an event that was too large to be sent.
DESCRIBED = event(DataKind.UPDATE, {"updatedFields": {"n": 1}})
UNTOLD = event(DataKind.UNTOLD)


def folded(*events: DataEvent) -> Outcome:
    outcome = fold(None, events[0])
    return reduce(fold, events[1:], outcome)


def shape(outcome: Outcome) -> tuple[Any, ...]:
    """Return a short form of an outcome, the combined effect of several events on one document.

    The form is ("deleted",), or ("again",) if the document must be reread. Otherwise, it is a tuple of values of the
    field `n`: first the value in the new document (None if there is none), then the value that each update stage sets.
    """
    assert outcome.key == KEY
    if outcome.refetch or outcome.deleted:
        assert outcome.document is None and not outcome.stages
        assert not (outcome.refetch and outcome.deleted)
        return ("again",) if outcome.refetch else ("deleted",)
    stages = [bson.decode(stage) for stage in outcome.stages]
    numbers = [
        each["$_internalApplyOplogUpdate"]["oplogUpdate"]["diff"]["i"]["n"] for each in stages
    ]
    return (outcome.document and bson.decode(outcome.document)["n"], *numbers)


FOLDS: list[tuple[list[DataEvent], tuple[Any, ...]]] = [
    ([insert(1)], (1,)),
    ([replace(1)], (1,)),
    ([DELETE], ("deleted",)),
    ([diff(1)], (None, 1)),
    ([DESCRIBED], ("again",)),
    ([UNTOLD], ("again",)),
    ([UNTOLD, diff(1)], ("again",)),
    ([UNTOLD, insert(1)], (1,)),
    ([insert(1), UNTOLD], ("again",)),
    ([insert(1), insert(2)], (2,)),
    ([insert(1), replace(2)], (2,)),
    ([insert(1), diff(2)], (1, 2)),
    ([insert(1), diff(2), diff(3)], (1, 2, 3)),
    ([insert(1), diff(2), replace(3)], (3,)),
    ([insert(1), diff(2), replace(3), diff(4)], (3, 4)),
    ([insert(1), DELETE], ("deleted",)),
    ([insert(1), DESCRIBED], ("again",)),
    ([diff(1), diff(2)], (None, 1, 2)),
    ([diff(1), replace(2)], (2,)),
    ([diff(1), DELETE], ("deleted",)),
    ([diff(1), DESCRIBED], ("again",)),
    ([DELETE, insert(1)], (1,)),
    ([DELETE, DELETE], ("deleted",)),
    ([DELETE, diff(1)], ("again",)),
    ([DELETE, insert(1), diff(2)], (1, 2)),
    ([DESCRIBED, diff(1)], ("again",)),
    ([DESCRIBED, replace(1)], (1,)),
    ([DESCRIBED, DELETE], ("deleted",)),
    ([DESCRIBED, DELETE, insert(1)], (1,)),
    ([insert(1), DELETE, diff(2), replace(3), diff(4)], (3, 4)),
]


@pytest.mark.parametrize("events, expected", FOLDS)
def test_events_of_one_document_become_one_outcome(
    events: list[DataEvent], expected: tuple[Any, ...]
) -> None:
    assert shape(folded(*events)) == expected


@given(
    st.lists(
        st.sampled_from([insert(1), replace(2), diff(3), DELETE, DESCRIBED, UNTOLD]), min_size=1
    )
)
def test_events_before_the_last_whole_document_are_ignored(events: list[DataEvent]) -> None:
    whole = {DataKind.INSERT, DataKind.REPLACE, DataKind.DELETE}
    last = max((n for n, each in enumerate(events) if each.kind in whole), default=0)
    assert shape(folded(*events)) == shape(folded(*events[last:]))


def test_too_many_updates_are_read_again() -> None:
    most = translate._MOST_STAGES
    assert shape(folded(*[diff(n) for n in range(most)])) == (None, *range(most))
    assert shape(folded(*[diff(n) for n in range(most + 1)])) == ("again",)
    assert shape(folded(insert(0), *[diff(n) for n in range(most + 1)])) == ("again",)


def test_too_large_updates_are_read_again() -> None:
    pad = "x" * (translate._MOST_BYTES // 3)
    large = event(DataKind.UPDATE, {"diff": {"i": {"n": 1, "x": pad}}}, raw_diff=True)
    assert shape(folded(large, large)) == (None, 1, 1)
    assert shape(folded(large, large, large)) == ("again",)
    document = event(DataKind.INSERT, {"_id": 7, "n": 1, "x": pad})
    assert shape(folded(document, large)) == (1, 1)
    assert shape(folded(document, large, large)) == ("again",)


def test_any_number_of_updates_fits_into_one_set() -> None:
    outcome = folded(*[plain_diff(n) for n in range(10 * translate._MOST_STAGES)])
    assert statement(outcome)["u"] == {"$set": {"n": 10 * translate._MOST_STAGES - 1}}


def sets(diff: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields that a `$set` must set to apply this diff, in order; None if a `$set` cannot apply it."""
    found = field_sets(entry(diff))
    return None if found is None else bson.decode(rawbson.document(b"".join(found.values())))


# Fields that often have the same length, but not the same structure.
similar_fields = st.builds(
    Field,
    st.sampled_from([0x01, 0x09, 0x12]),
    st.sampled_from([b"a", b"b", b".", b"$", b"u"]),
    st.binary(min_size=8, max_size=8),
) | st.builds(
    Field,
    st.sampled_from([0x02, 0x0D]),
    st.sampled_from([b"a", b"b"]),
    st.sampled_from([b"", b"x", b"y", b"xxx", b"xyz"]).map(documents.string),
)


def diff_of(fields: list[Field]) -> bytes:
    """Return the oplog entry of an update: the first field is set at the top level, the others in the document `d`."""
    inner = Field(0x03, b"sd", document(Field(0x03, b"u", document(*fields[1:]))))
    diff = document(Field(0x03, b"u", document(*fields[:1])), inner)
    return document(Field(0x10, b"$v", int32(2)), Field(0x03, b"diff", diff))


def sets_of(fields: list[Field]) -> dict[bytes, bytes] | None:
    """Return the encoded fields of the `$set` with the effect of `diff_of(fields)`, by path.

    Return None if a `$set` cannot have this effect. This is computed independently of the code under test.
    """
    paths = [(b"d." if number else b"") + each.name for number, each in enumerate(fields)]
    if any(each.name in (b".", b"$") for each in fields) or len(set(paths)) < len(paths):
        return None
    return {path: Field(each.kind, path, each.value).raw for path, each in zip(paths, fields)}


class TestFieldSets:
    @pytest.mark.parametrize(
        "diff, expected",
        [
            ({"u": {"b": 1, "a": "x"}}, {"b": 1, "a": "x"}),
            ({"u": {"a": {"$x": 1, "b.c": 2}}}, {"a": {"$x": 1, "b.c": 2}}),
            ({"u": {"a": Int64(1)}, "sb": {"u": {"c": None}}}, {"a": Int64(1), "b.c": None}),
            (
                {"sa": {"sb": {"u": {"c": [1]}}, "sd": {"u": {"0": ZERO}}}},
                {"a.b.c": [1], "a.d.0": ZERO},
            ),
            ({"su": {"u": {"u": 1}}, "ss": {"u": {"i": 2}}}, {"u.u": 1, "s.i": 2}),
            ({"u": {"a$": 1, "ä": 2}}, {"a$": 1, "ä": 2}),
        ],
    )
    def test_existing_fields_are_set_by_path(
        self, diff: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        assert sets(diff) == expected

    @pytest.mark.parametrize(
        "diff",
        [
            {"i": {"a": 1}},
            {"d": {"a": False}},
            {"u": {"a": 1}, "i": {"b": 1}},
            {"d": {"c": False}, "u": {"a": 1}},
            {"sa": {"i": {"b": 1}}},
            {"sa": {"a": True, "u0": 1}},
            {"sa": {"a": True, "l": 2}},
            {"u": {"a": 1}, "sb": {"sc": {"a": True, "s0": {"u": {"x": 1}}}}},
            {"u": {"": 1}},
            {"u": {"a.b": 1}},
            {"u": {"$a": 1}},
            {"s": {"u": {"a": 1}}},
            {"sa.b": {"u": {"c": 1}}},
            {"s$a": {"u": {"c": 1}}},
            {"sa": {"u": {"$b": 1}}},
            {"sa": {"u": {"b.c": 1}}},
            {"x": {"u": {"b": 1}}},
        ],
        ids=str,
    )
    def test_other_updates_are_replayed_with_the_diff(self, diff: dict[str, Any]) -> None:
        assert sets(diff) is None

    @pytest.mark.parametrize("body", [{"$v": 1, "diff": {"u": {"a": 1}}}, {"$v": 2}, {}])
    def test_an_unknown_format_is_replayed_with_the_diff(self, body: dict[str, Any]) -> None:
        assert field_sets(bson.encode(body)) is None

    def test_a_duplicate_field_name_is_replayed_with_the_diff(self) -> None:
        twice = document(Field(0x0A, b"a", b""), Field(0x0A, b"a", b""))
        diff = document(Field(0x03, b"u", twice))
        raw = document(Field(0x10, b"$v", int32(2)), Field(0x03, b"diff", diff))
        assert field_sets(raw) is None

    @given(st.lists(documents.fields, max_size=6, unique_by=lambda field: field.name))
    def test_values_are_kept_to_the_byte(self, fields: list[Field]) -> None:
        plain = not any(f.name[:1] in (b"", b"$") or b"." in f.name for f in fields)
        inner = document(Field(0x03, b"u", document(*fields)))
        diff = document(*inner_fields(inner), Field(0x03, b"sx", inner))
        raw = document(Field(0x10, b"$v", int32(2)), Field(0x03, b"diff", diff))
        expected = {b"x." + f.name: Field(f.kind, b"x." + f.name, f.value).raw for f in fields}
        expected |= {f.name: f.raw for f in fields}
        found = field_sets(raw)
        assert found == (expected if plain and len(expected) == 2 * len(fields) else None)

    @given(st.lists(st.lists(similar_fields, max_size=3), min_size=1, max_size=8))
    def test_a_remembered_shape_gives_the_same_fields_as_parsing(
        self, updates: list[list[Field]]
    ) -> None:
        translate._shapes.clear()
        raws = [diff_of(each) for each in updates]
        remembered = [field_sets(raw) for raw in raws + raws]
        parsed = [sets_of(each) for each in updates]
        assert remembered == parsed + parsed

    def test_only_shapes_of_short_diffs_are_remembered(self) -> None:
        translate._shapes.clear()
        for length in range(translate._LONGEST_SHAPE - 100, translate._LONGEST_SHAPE + 100, 20):
            assert sets({"u": {"a": "x" * length}}) == {"a": "x" * length}
        assert translate._shapes and max(translate._shapes) <= translate._LONGEST_SHAPE

    @pytest.mark.parametrize(
        "names, merged",
        [
            (["a", "a"], {"a": 1}),
            (["a", "b", "a"], {"a": 2, "b": 1}),
            (["a.x", "a.y"], {"a.x": 0, "a.y": 1}),
            (["a.x.y", "a.x.z", "ax"], {"a.x.y": 0, "a.x.z": 1, "ax": 2}),
            (["a", "a.x"], None),
            (["a.x", "a"], None),
            (["b", "a.x.y", "c", "a"], None),
        ],
    )
    def test_sets_of_a_document_are_merged_unless_they_overlap(
        self, names: list[str], merged: dict[str, int] | None
    ) -> None:
        outcome = folded(*[updated(name, n) for n, name in enumerate(names)])
        made = statement(outcome)["u"]
        assert made == {"$set": merged} if merged else [*made[0]] == ["$_internalApplyOplogUpdate"]

    @pytest.mark.parametrize("before", [diff(1), insert(1), replace(1)])
    def test_sets_after_another_stage_are_part_of_the_pipeline(self, before: DataEvent) -> None:
        assert len(statement(folded(before, plain_diff(2)))["u"]) == 2

    def test_sets_before_another_stage_are_part_of_the_pipeline(self) -> None:
        stages = statement(folded(plain_diff(1), plain_diff(2), diff(3)))["u"]
        assert [each["$_internalApplyOplogUpdate"]["oplogUpdate"]["diff"] for each in stages] == [
            {"u": {"n": 1}},
            {"u": {"n": 2}},
            {"i": {"n": 3}},
        ]


def inner_fields(raw: bytes) -> list[Field]:
    """Return a list with the only field of a diff: `u`, a document. `raw` is a BSON document with only that field."""
    return [Field(0x03, b"u", raw[7:-1])]


def updated(path: str, n: int) -> DataEvent:
    """Return an update event that sets an existing field to `n`. If the field is nested, `path` contains dots."""
    *parents, name = path.split(".")
    diff: dict[str, Any] = {"u": {name: n}}
    for parent in reversed(parents):
        diff = {f"s{parent}": diff}
    return event(DataKind.UPDATE, {"$v": 2, "diff": diff}, raw_diff=True)


@pytest.mark.parametrize(
    "events, new",
    [
        ([insert(1)], True),
        ([insert(1), replace(2)], True),
        ([replace(1)], False),
        ([insert(1), diff(2)], False),
        ([DELETE, insert(1)], False),
        ([insert(1), DELETE, insert(2)], False),
        ([diff(1), insert(2)], False),
        ([event(DataKind.INSERT, {"_id": 7, "t": ZERO})], False),
    ],
)
def test_only_new_unmodified_documents_are_insertable(events: list[DataEvent], new: bool) -> None:
    assert insertable(folded(*events)) is new


def statement(outcome: Outcome, **how: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = bson.decode(update_statement(outcome, **how))
    return decoded


class TestStatements:
    def test_a_document_replaces_or_is_inserted(self) -> None:
        assert statement(folded(insert(1))) == {
            "q": {"_id": 7},
            "u": {"_id": 7, "n": 1},
            "upsert": True,
        }

    def test_an_update_is_a_pipeline_without_upsert(self) -> None:
        stage = {"$_internalApplyOplogUpdate": {"oplogUpdate": {"$v": 2, "diff": {"i": {"n": 1}}}}}
        assert statement(folded(diff(1))) == {"q": {"_id": 7}, "u": [stage]}

    def test_a_document_and_its_updates_are_one_pipeline(self) -> None:
        made = statement(folded(insert(1), diff(2), diff(3)))
        assert made["upsert"] is True
        assert made["u"][0] == {"$replaceWith": {"$literal": {"_id": 7, "n": 1}}}
        assert [*made["u"][1]] == [*made["u"][2]] == ["$_internalApplyOplogUpdate"]

    @pytest.mark.parametrize("body", [{"_id": 7, "t": ZERO}, {"_id": 7, "a": 1, "": ZERO}])
    def test_a_zero_timestamp_is_written_literally(self, body: dict[str, Any]) -> None:
        assert statement(folded(event(DataKind.INSERT, body))) == {
            "q": {"_id": 7},
            "u": [{"$replaceWith": {"$literal": body}}],
            "upsert": True,
        }

    def test_any_document_may_be_written_literally(self) -> None:
        assert statement(folded(insert(1)), literal=True)["u"] == [
            {"$replaceWith": {"$literal": {"_id": 7, "n": 1}}}
        ]

    @pytest.mark.parametrize("identity", [7, None, "x", {"a": 1}, ZERO, Decimal128("1"), ""])
    def test_a_delete_statement_deletes_one_document(self, identity: object) -> None:
        made = bson.decode(delete_statement(Outcome(bson.encode({"_id": identity}), deleted=True)))
        assert made == {"q": {"_id": identity}, "limit": 1}

    @given(documents.stored_field_lists)
    def test_documents_go_into_statements_to_the_byte(self, fields: list[Field]) -> None:
        raw, key = document(*fields), document(fields[0])
        for literal in (False, True):
            made = update_statement(Outcome(key, raw), literal)
            assert made.startswith(b"\x03q\0" + key, 4) and raw in made[7 + len(key) :]
            assert len(made) == int.from_bytes(made[:4], "little")

    @given(documents.stored_field_lists)
    def test_fields_are_set_to_the_byte(self, fields: list[Field]) -> None:
        key = document(fields[0])
        made = update_statement(Outcome(key, sets={each.name: each.raw for each in fields}))
        values = {each.name: each.raw for each in fields}.values()
        update = rawbson.single(0x03, b"$set", rawbson.document(*values))
        assert made == rawbson.document(b"\x03q\0" + key, b"\x03u\0" + update)

    @given(documents.stored_field_lists)
    def test_two_statements_write_a_document_to_the_byte(self, fields: list[Field]) -> None:
        raw, key = document(*fields), document(fields[0])
        first, second = growing_statements(Outcome(key, raw))
        assert first == rawbson.document(
            b"\x03q\0" + key, b"\x03u\0" + document(), b"\x08upsert\0\x01"
        )
        diff = rawbson.document(b"\x03i\0" + document(*fields[1:]))
        logged = rawbson.document(b"\x10$v\0" + int32(2), b"\x03diff\0" + diff)
        stages = rawbson.document(b"\x030\0" + diff_stage(logged))
        assert second == rawbson.document(b"\x03q\0" + key, b"\x04u\0" + stages)

    @pytest.mark.parametrize("count", [1, 9, 10, 11, 100])
    def test_a_pipeline_has_its_stages_in_order(self, count: int) -> None:
        stages = [bson.encode({"$set": {"n": number}}) for number in range(count)]
        made = statement(Outcome(KEY, stages=stages))
        assert made["u"] == [{"$set": {"n": number}} for number in range(count)]


def sized(key: int, size: int) -> bytes:
    """Return a document of `size` bytes whose `_id` is a string of `key` bytes."""
    named = bson.encode({"_id": "k" * key, "b": b""})
    return bson.encode({"_id": "k" * key, "b": bytes(size - len(named))})


class TestLargeKeys:
    @pytest.mark.parametrize(
        "key, size, fits",
        [
            (10, 16 << 20, True),
            (10_000, 16 << 20, True),
            (20_000, 16 << 20, False),
            (3_000_000, 13_000_000, True),
            (3_000_000, 14_500_000, False),
        ],
    )
    def test_a_statement_has_room_for_a_document_and_its_id(
        self, key: int, size: int, fits: bool
    ) -> None:
        outcome = whole(sized(key, size))
        assert fits_statement(outcome) is fits
        statements = [update_statement(outcome)] if fits else growing_statements(outcome)
        # The driver limits a command to 16 MB and 16 kB.
        assert max(map(len, statements)) < (16 << 20) + 13_000

    def test_documents_that_are_too_large_are_not_inserted(self) -> None:
        small, large = bson.encode({"_id": 1, "t": ZERO}), sized(3_000_000, 14_500_000)
        assert not_insertable(Block.of([sized(10, 16 << 20)])) == set()
        assert not_insertable(Block.of([sized(10, 100), small])) == {1}
        assert not_insertable(Block.of([sized(10, 100), large, small])) == {1, 2}


def is_zero_at_top(field: Field) -> bool:
    return field.kind == 0x11 and field.value == bytes(8) and field.name != b"_id"


# Fields that are no zero timestamp of the top level, but contain bytes that look like one.
DECOYS = [
    Field(0x12, b"a", bytes(8)),
    Field(0x12, b"\x11", bytes(8)),
    Field(0x12, b"", bytes(8)),
    Field(0x10, b"\x11a", bytes(4)),
    Field(0x05, b"b", int32(40) + b"\0" + b"\x11t" + bytes(38)),
    Field(0x05, b"b", int32(1000) + b"\0" + bytes(1000)),
    Field(0x02, b"s", documents.string(b"\x11x" + bytes(20))),
    Field(0x03, b"d", document(Field(0x11, b"t", bytes(8)))),
    Field(0x04, b"l", documents.array((0x11, bytes(8)))),
    Field(0x11, b"t", bytes(7) + b"\x01"),
    Field(0x11, b"t", b"\x01" + bytes(7)),
    Field(0x11, b"t", bytes([0x11]) * 8),
]
REAL = [Field(0x11, name, bytes(8)) for name in (b"t", b"", b"\x11", b"long name", b"_id2")]
tricky = st.lists(documents.fields | st.sampled_from([*DECOYS, *REAL]), max_size=6)
identities = st.sampled_from(
    [Field(0x11, b"_id", bytes(8)), Field(0x10, b"_id", bytes(4)), Field(0x0A, b"_id", b"")]
)


class TestZeroTimestamps:
    @pytest.mark.parametrize("field", REAL, ids=lambda field: repr(field.name))
    @pytest.mark.parametrize("decoy", DECOYS, ids=range(len(DECOYS)))
    def test_a_zero_timestamp_is_found_among_similar_bytes(
        self, field: Field, decoy: Field
    ) -> None:
        alone = document(decoy)
        assert not holds_zero_timestamp(alone)
        for raw in (document(field, decoy), document(decoy, field), document(decoy, field, decoy)):
            assert holds_zero_timestamp(raw)
            assert zero_timestamp_documents(Block.of([alone, raw, alone])) == {1}

    def test_a_zero_timestamp_in_the_id_is_ignored(self) -> None:
        assert not holds_zero_timestamp(bson.encode({"_id": ZERO}))

    @given(st.lists(st.tuples(identities, tricky), max_size=8))
    def test_the_same_zero_timestamps_are_found_as_by_decoding(
        self, contents: list[tuple[Field, list[Field]]]
    ) -> None:
        raws = [document(identity, *fields) for identity, fields in contents]
        expected = {n for n, (_, fields) in enumerate(contents) if any(map(is_zero_at_top, fields))}
        assert zero_timestamp_documents(Block.of(raws)) == expected
        assert {n for n, raw in enumerate(raws) if holds_zero_timestamp(raw)} == expected

    @pytest.mark.parametrize("every", [1, 2, 7, 1000])
    def test_zero_timestamps_are_found_in_many_documents(self, every: int) -> None:
        raws = [
            bson.encode({"_id": n, "n": Int64(0), **({} if n % every else {"t": ZERO})})
            for n in range(3000)
        ]
        assert zero_timestamp_documents(Block.of(raws)) == set(range(0, 3000, every))

    @pytest.mark.parametrize("zeros", [8, 9, 10, 1000, 3 << 20])
    @pytest.mark.parametrize("where", ["first", "last", "alone"])
    def test_zero_timestamps_are_found_beside_long_runs_of_zeros(
        self, zeros: int, where: str
    ) -> None:
        fields: dict[str, Callable[[], dict[str, Any]]] = {
            "first": lambda: {"t": ZERO, "z": bytes(zeros)},
            "last": lambda: {"z": bytes(zeros), "t": ZERO},
            "alone": lambda: {"z": bytes(zeros)},
        }
        raw = bson.encode({"_id": 1, **fields[where]()})
        found = zero_timestamp_documents(Block.of([raw, raw]))
        assert found == (set() if where == "alone" else {0, 1})

    def test_many_irrelevant_zeros_are_visited_once(self) -> None:
        raw = bson.encode({"_id": 1, "l": [ZERO] * 100_000})
        with no_more_work_than(1.0):
            assert zero_timestamp_documents(Block.of([raw])) == set()

    def test_an_empty_list_has_no_zero_timestamps(self) -> None:
        assert zero_timestamp_documents(Block.of([])) == set()
