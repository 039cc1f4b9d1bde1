"""Tests which entries of `sharding` and which collections are refused, and which indexes support a shard key.

Also tests the indexes that the service creates for a shard key, and the ranges of shard key values that are distributed
over the shards of the destination.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.regex import Regex

from syncsvc.rules.sharding import (
    SPARE,
    carried,
    chunks_of,
    entry_violations,
    filter_violations,
    is_served,
    key_of,
    ranges,
    sampled_fields,
    serves,
    spare,
    support,
    violations,
)
from tests.unit.documents import Field, document, int32, string
from verifier.cluster import rawbson
from verifier.cluster.keys import canonical
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind

NAME = Namespace("d", "c")
MIN, MAX = Field(0xFF, b"a", b""), Field(0x7F, b"a", b"")


def entry(*key: Document, name: Namespace = NAME) -> Document:
    named = {"database": name.database, "collection": name.collection}
    return {**named, "shardCollection": {"key": list(key)}}


def sharding(*entries: Document) -> Document:
    return {"createSupportingIndexes": False, "shardingEntries": list(entries)}


def by(*, unique: bool = False, **key: Any) -> Document:
    return {"key": key, "unique": unique}


def index(*, name: str = "i", key: Document, **fields: Any) -> Document:
    return {"v": 2, "key": key, "name": name, **fields}


def spec(
    shard_key: Document | None, *indexes: Document, kind: Kind = Kind.COLLECTION, **options: Any
) -> CollectionSpec:
    by_name = {each["name"]: each for each in indexes}
    return CollectionSpec(NAME, kind, bytes(16), options, by_name, shard_key)


COLLATED: dict[str, Any] = {"collation": {"locale": "en", "strength": 2}}


class TestEntries:
    def test_the_key_has_the_fields_in_their_order(self) -> None:
        found = key_of(NAME, sharding(entry({"b": 1}, {"a": "hashed"})))
        assert found == {"key": {"b": 1, "a": "hashed"}, "unique": False}
        assert list(found["key"]) == ["b", "a"]

    def test_unlisted_collections_are_not_sharded(self) -> None:
        assert key_of(Namespace("d", "other"), sharding(entry({"a": 1}))) == {}
        assert key_of(Namespace("D", "c"), sharding(entry({"a": 1}))) == {}
        assert key_of(NAME, None) is None

    @pytest.mark.parametrize(
        "key", [[{"a": 1}], [{"a.b": 1}, {"c": "hashed"}], [{"_id": 1}], [{"a.0": 1}, {"a b": 1}]]
    )
    def test_valid_shard_keys_are_accepted(self, key: list[Document]) -> None:
        assert list(entry_violations(sharding(entry(*key)))) == []

    @pytest.mark.parametrize(
        "key, reason",
        [
            (
                [{"a": -1}],
                "the direction of the field a is -1, but the fields of a shard key must be ascending or hashed",
            ),
            ([{"a": "hashed"}, {"b": "hashed"}], "the shard key has more than one hashed field"),
            ([{"a": 1}, {"a": 1}], "the shard key contains a more than once"),
            ([{"a": 1}, {"a": "hashed"}], "the shard key contains a more than once"),
            ([{"a..b": 1}], "the field path a..b has an empty part"),
            ([{".a": 1}], "the field path .a has an empty part"),
            ([{"a.": 1}], "the field path a. has an empty part"),
            ([{"a.$b": 1}], "the field path a.$b has a part that begins with $"),
            ([{"$**": 1}], "the field path $** has a part that begins with $"),
        ],
    )
    def test_invalid_shard_keys_are_named(self, key: list[Document], reason: str) -> None:
        asked = sharding(entry({"a": 1}, name=Namespace("d", "other")), entry(*key))
        ((kind, text),) = entry_violations(asked)
        assert (kind.name, kind.status) == ("InvalidShardingEntry", 400)
        assert text == f"sharding.shardingEntries[1], d.c: {reason}."

    def test_both_entries_of_the_same_collection_are_named(self) -> None:
        found = list(entry_violations(sharding(entry({"a": 1}), entry({"b": 1}))))
        assert [text for _, text in found] == [
            f"sharding.shardingEntries[{number}], d.c: there are several entries for this collection."
            for number in (0, 1)
        ]

    @pytest.mark.parametrize(
        "name",
        [
            "admin.c",
            "config.c",
            "local.c",
            "mongosync_reserved_for_internal_use.c",
            "d.system.views",
        ],
    )
    def test_entries_of_system_collections_are_named(self, name: str) -> None:
        database, _, collection = name.partition(".")
        asked = sharding(entry({"a": 1}, name=Namespace(database, collection)))
        ((_, text),) = entry_violations(asked)
        assert (
            text == f"sharding.shardingEntries[0], {name}: the collection is not a user collection."
        )

    def test_entries_that_the_filter_excludes_are_named(self) -> None:
        ((_, text),) = filter_violations(sharding(entry({"a": 1})), {NAME})
        assert text == "sharding.shardingEntries[0], d.c: the filter excludes it."


class TestServing:
    @pytest.mark.parametrize(
        "shard_key, found, expected",
        [
            (by(a=1), index(key={"a": 1}), True),
            (by(a=1), index(key={"a": 1.0}), True),
            (by(a=1), index(key={"a": Decimal128("1")}), True),
            (by(a=1), index(key={"a": 1, "b": Decimal128("-2.5")}), True),
            (by(a=1), index(key={"a": Decimal128("-1")}), False),
            (by(a=1, unique=True), index(key={"a": Decimal128("1.0")}, unique=True), True),
            (by(a=1), index(key={"a": 1, "b": -1}), True),
            (by(a=1), index(key={"a": 1, "b": "hashed"}), True),
            (by(a=1), index(key={"a": 1}, unique=True), True),
            (by(a=1), index(key={"a": 1}, expireAfterSeconds=1), True),
            (by(a=1), index(key={"a": -1}), False),
            (by(a=1), index(key={"b": 1, "a": 1}), False),
            (by(a=1), index(key={"a": "hashed"}), False),
            (by(a=1), index(key={"a": 1, "_fts": "text", "_ftsx": 1}), False),
            (by(a=1), index(key={"a": 1, "b": "2dsphere"}), False),
            (by(a=1), index(key={"a": 1}, sparse=True), False),
            (by(a=1), index(key={"a": 1}, hidden=True), False),
            (by(a=1), index(key={"a": 1}, partialFilterExpression={}), False),
            (by(a=1), index(key={"a": 1}, **COLLATED), False),
            (by(a=1), index(key={"a": 1, "b.$**": -1}), False),
            (by(a=1), index(key={"a": 1, "$**": 1}, wildcardProjection={"b": 1}), False),
            (by(a=1), index(key={"a": 1, "b.x$**": 1}), True),
            (by(a="hashed"), index(key={"a": "hashed", "b": 1}), True),
            (by(a="hashed"), index(key={"a": 1}), False),
            (by(a=1, b=1), index(key={"a": 1}), False),
            (by(a=1, b=1), index(key={"b": 1, "a": 1}), False),
            (by(a=1, unique=True), index(key={"a": 1}), False),
            (by(a=1, unique=True), index(key={"a": 1}, unique=True), True),
            (by(a=1, unique=True), index(key={"a": 1}, prepareUnique=True), True),
            (by(a=1, unique=True), index(key={"a": 1, "b": 1}, unique=True), False),
        ],
    )
    def test_indexes_that_support_a_shard_key(
        self, shard_key: Document, found: Document, expected: bool
    ) -> None:
        """Test a table of indexes, with the compound wildcard indexes of MongoDB 7.0.

        Unpatched servers of 7.0 and 8.0 lose documents if such an index supports a shard key (SERVER-103774); patched
        ones refuse it, as `isCompatibleWithShardKey` in their source says.
        """
        assert serves(found, shard_key) is expected
        assert is_served(shard_key, [found], collated=False) is expected

    def test_the_id_index_supports_if_its_collation_is_simple(self) -> None:
        assert is_served(by(_id=1), [], collated=False)
        assert not is_served(by(_id=1), [], collated=True)
        assert not is_served(by(_id="hashed"), [], collated=False)
        assert not is_served(by(_id=1, a=1), [], collated=False)


class TestSupport:
    def test_a_new_supporting_index_has_the_key_and_the_usual_name(self) -> None:
        key: Document = {"a.b": 1, "h": "hashed"}
        found = support(spec(by(**key)))
        assert found == {"v": 2, "key": key, "name": "a.b_1_h_hashed"}

    def test_a_new_supporting_index_has_an_unused_name(self) -> None:
        taken = index(name="a_1", key={"a": 1}, sparse=True)
        assert support(spec(by(a=1), taken)) == index(name="a_1_", key={"a": 1})

    @pytest.mark.parametrize("direction", [1, 1.0, Decimal128("1")])
    def test_a_new_supporting_index_differs_from_a_hidden_one(self, direction: Any) -> None:
        hidden = index(name="other", key={"a": direction}, hidden=True)
        assert support(spec(by(a=1), hidden))["key"] == {"a": 1, "syncsvc": 1}

    def test_a_new_supporting_index_differs_from_the_id_index(self) -> None:
        assert support(spec(by(_id=1), **COLLATED))["key"] == {"_id": 1, "syncsvc": 1}

    def test_a_new_supporting_index_is_unique_if_the_shard_key_is(self) -> None:
        assert support(spec(by(a=1, unique=True)))["unique"] is True

    def test_a_new_supporting_index_supports_the_shard_key(self) -> None:
        hidden = index(name="other", key={"a": 1}, hidden=True)
        for each in (spec(by(a=1)), spec(by(a=1), hidden), spec(by(a=1, unique=True))):
            assert each.shard_key is not None
            assert serves(support(each), each.shard_key)

    def test_the_spare_index_has_a_distinct_key(self) -> None:
        found = spare(spec(by(a="hashed")))
        assert found == index(name=SPARE, key={"a": "hashed", SPARE: 1})
        assert serves(found, by(a="hashed"))


@pytest.mark.parametrize(
    "definition, expected",
    [
        (spec(None, kind=Kind.VIEW), []),
        (spec({}, capped=True), []),
        (spec({}, index(key={"b": 1}, unique=True)), []),
        (spec(by(a=1)), []),
        (spec(by(a=1), kind=Kind.VIEW), ["CollectionNotShardable"]),
        (spec(by(a=1), kind=Kind.TIME_SERIES), ["CollectionNotShardable"]),
        (spec(by(a=1), capped=True), ["CollectionNotShardable"]),
        (spec(by(a=1), index(key={"b": 1})), []),
        (spec(by(a=1), index(key={"b": 1}, unique=True)), ["UniqueIndexIncompatible"]),
        (spec(by(a=1), index(key={"b": 1}, prepareUnique=True)), ["UniqueIndexIncompatible"]),
        (spec(by(a=1), index(key={"b": 1, "a": 1}, unique=True)), ["UniqueIndexIncompatible"]),
        (spec(by(a=1, b=1), index(key={"a": 1}, unique=True)), ["UniqueIndexIncompatible"]),
        (spec(by(a=1), index(key={"a": -1, "b": 1}, unique=True)), []),
        (spec(by(a="hashed"), index(key={"a": 1}, unique=True)), []),
        (spec(by(a=1), index(key={"_id": 1, "b": 1}, unique=True)), []),
    ],
)
def test_collections_that_cannot_be_sharded_are_named(
    definition: CollectionSpec, expected: list[str]
) -> None:
    assert [kind.name for kind, _ in violations(definition)] == expected


class TestRanges:
    @pytest.mark.parametrize(
        "key, fields",
        [
            (by(a=1, b=1), ["a", "b"]),
            (by(a=1, h="hashed", b=1), ["a"]),
            (by(h="hashed", a=1), []),
        ],
    )
    def test_ranges_are_by_the_fields_before_a_hashed_one(
        self, key: Document, fields: list[str]
    ) -> None:
        assert sampled_fields(key) == fields

    def test_without_a_sample_there_is_one_range(self) -> None:
        assert ranges(by(a=1), [], 8) == [({"a": MinKey()}, {"a": MaxKey()})]

    def test_ranges_have_equally_many_documents(self) -> None:
        sample = [bson.encode({"0": n}) for n in range(100)]
        bounds = [least["a"] for least, _ in ranges(by(a=1), sample, 4)]
        assert bounds == [MinKey(), 25, 50, 75]

    def test_ranges_cover_everything(self) -> None:
        sample = [bson.encode({"0": n // 10, "1": str(n)}) for n in range(40)]
        found = ranges(by(a=1, b=1), sample, 7)
        assert len(found) == 7
        assert found[0][0] == dict.fromkeys("ab", MinKey())
        assert found[-1][1] == dict.fromkeys("ab", MaxKey())
        assert all(left[1] == right[0] for left, right in zip(found, found[1:]))

    def test_values_equal_for_a_server_are_in_one_range(self) -> None:
        sample = [bson.encode({"0": value}) for value in (1, 1.0, bson.Int64(1), 1, 2, 2.0)]
        assert [least["a"] for least, _ in ranges(by(a=1), sample, 6)] == [MinKey(), 1, 2]

    def test_fields_from_a_hashed_one_on_are_bounded_by_minkey(self) -> None:
        sample = [bson.encode({"0": n}) for n in range(2)]
        found = ranges(by(a=1, h="hashed"), sample, 2)
        assert found[0][1] == {"a": 1, "h": MinKey()}

    @pytest.mark.parametrize(
        "value",
        [MinKey(), MaxKey(), [1], "x" * 2000, Regex("a"), {"b": {"$c": 1}}, {"b": [{"$c": 1}]}],
    )
    def test_unsuitable_values_are_no_bounds(self, value: object) -> None:
        assert len(ranges(by(a=1), [bson.encode({"0": value})] * 3, 3)) == 1

    def test_strings_that_are_not_utf8_are_no_bounds(self) -> None:
        """Decoded, a byte that is not UTF-8 would become U+FFFD, which sorts before some of these bytes."""
        texts = [b"caf%c" % byte for byte in (*range(0x61, 0x71), *range(0xE0, 0xFF))]
        sample = [document(Field(0x02, b"0", string(each))) for each in texts]
        found = [bson.encode(least) for least, _ in ranges(by(a=1), sample, 8)]
        assert len(found) == 8
        keys = [canonical(each, next(rawbson.elements(each))) for each in found]
        assert keys == sorted(keys)
        assert all(b"\xef\xbf\xbd" not in each for each in found)

    def test_values_that_cannot_be_decoded_are_no_bounds(self) -> None:
        malformed = document(Field(0x05, b"0", int32(1) + b"\2x"))
        assert len(ranges(by(a=1), [malformed] * 3, 3)) == 1


class TestChunksOf:
    def test_a_chunk_that_begins_at_a_changed_bound_is_joined_to_the_one_before(self) -> None:
        latin1, malformed = string(b"caf\xe9"), int32(1) + b"\2x"
        bounds = [
            *(MIN, Field(0x02, b"a", string(b"b")), Field(0x02, b"a", latin1)),
            *(Field(0x02, b"a", string(b"d")), Field(0x05, b"a", malformed), MAX),
        ]
        rows = [
            document(
                Field(0x03, b"min", document(least)),
                Field(0x03, b"max", document(beyond)),
                Field(0x02, b"shard", string(b"%d" % number)),
            )
            for number, (least, beyond) in enumerate(zip(bounds, bounds[1:]))
        ]
        assert chunks_of(rows) == [
            (({"a": MinKey()}, {"a": "b"}), "0"),
            (({"a": "b"}, {"a": "d"}), "1"),
            (({"a": "d"}, {"a": MaxKey()}), "3"),
        ]

    def test_a_collection_that_is_not_sharded_has_no_chunks(self) -> None:
        assert chunks_of([]) == []


class TestCarried:
    """Tests how the chunks of the source are assigned to the shards of the destination."""

    CHUNKS: list[tuple[tuple[Document, Document], str]] = [
        (({"a": MinKey()}, {"a": 1}), "x"),
        (({"a": 1}, {"a": 2}), "x"),
        (({"a": 2}, {"a": 3}), "y"),
        (({"a": 3}, {"a": MaxKey()}), "x"),
    ]

    def test_each_shard_gets_the_ranges_of_one_shard(self) -> None:
        assert carried(self.CHUNKS, ["p", "q"]) == [
            (({"a": MinKey()}, {"a": 2}), "p"),
            (({"a": 2}, {"a": 3}), "q"),
            (({"a": 3}, {"a": MaxKey()}), "p"),
        ]

    def test_other_numbers_of_shards_get_equally_many_ranges(self) -> None:
        assert [shard for _, shard in carried(self.CHUNKS, ["p", "q", "r"])] == ["p", "q", "r", "p"]
        assert carried(self.CHUNKS, ["p"]) == [(({"a": MinKey()}, {"a": MaxKey()}), "p")]

    @pytest.mark.parametrize(
        ("chunks", "owners", "shards"),
        [(3000, 2, "pq"), (2000, 2, "pq"), (2000, 1, "pq"), (1500, 3, "pq"), (1500, 1, "pqrs")],
    )
    def test_thousands_of_chunks_are_joined_and_spread_evenly(
        self, chunks: int, owners: int, shards: str
    ) -> None:
        bounds = [MinKey(), *range(chunks - 1), MaxKey()]
        found = carried(
            [
                (({"a": low}, {"a": high}), f"s{number % owners}")
                for number, (low, high) in enumerate(zip(bounds, bounds[1:]))
            ],
            shards,
        )
        ranges = [each for each, _ in found]
        assert ranges[0][0] == {"a": MinKey()} and ranges[-1][1] == {"a": MaxKey()}
        assert all(before[1] == after[0] for before, after in zip(ranges, ranges[1:]))
        numbers = Counter(shard for _, shard in found)
        assert 500 <= len(found) <= 1000 and set(numbers) == set(shards)
        assert max(numbers.values()) - min(numbers.values()) <= 1

    def test_thousands_of_chunks_that_can_be_joined_keep_their_shards(self) -> None:
        bounds = [MinKey(), *range(1999), MaxKey()]
        chunks = [
            (({"a": low}, {"a": high}), "x" if number < 1500 else "y")
            for number, (low, high) in enumerate(zip(bounds, bounds[1:]))
        ]
        assert carried(chunks, ["p", "q"]) == [
            (({"a": MinKey()}, {"a": 1499}), "p"),
            (({"a": 1499}, {"a": MaxKey()}), "q"),
        ]
