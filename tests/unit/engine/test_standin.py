"""Stand-ins, the relaxed definitions on the destination until the commit, accept all writes of the source.

The conversion back must restore every definition exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import SON

from syncsvc.engine.definitions.standin import (
    CAPPED_ROOM,
    NEVER_SECONDS,
    conversions,
    creatable,
    deferred_indexes,
    earlier_indexes,
    expirations,
    is_modifiable,
    modifications,
    preparations,
    prepared,
    serving,
    stand_in,
    weakenings,
)
from syncsvc.rules.deferral import deferred_names
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind

Document = dict[str, Any]


def index(name: str = "i", **fields: Any) -> Document:
    return {"v": 2, "key": {"a": 1}, "name": name, **fields}


def spec(
    *indexes: Document, options: Document | None = None, kind: Kind = Kind.COLLECTION
) -> CollectionSpec:
    by_name = {each["name"]: each for each in indexes}
    return CollectionSpec(Namespace("shop", "orders"), kind, bytes(16), options or {}, by_name)


def modify(name: str, **change: Any) -> Document:
    return {"collMod": "orders", "index": {"name": name, **change}}


KEPT: Document = {
    "key": {"b": -1, "a": "hashed"},
    "sparse": True,
    "partialFilterExpression": {"a": 1},
    "collation": {"locale": "de"},
    "wildcardProjection": {"a": 1},
    "weights": {"a": 2},
    "bits": 20,
}


@pytest.mark.parametrize(
    "found, wanted, expected",
    [
        (index(), index(), True),
        (index(), index(expireAfterSeconds=NEVER_SECONDS), True),
        (index(expireAfterSeconds=5), index(expireAfterSeconds=NEVER_SECONDS), True),
        (index(hidden=True), index(), True),
        (index(hidden=True), index(expireAfterSeconds=5), True),
        (index(expireAfterSeconds=5), index(), False),
        (index(sparse=True), index(expireAfterSeconds=5), False),
        (index(hidden=True, sparse=True), index(), False),
    ],
)
def test_modifiable_indexes(found: Document, wanted: Document, expected: bool) -> None:
    assert is_modifiable(found, wanted) is expected
    if expected:
        built = {"i": found}
        for command in modifications("orders", found, wanted):
            built = after(built, command)
        assert {name: value for name, value in built["i"].items() if value is not False} == wanted


class TestStandIn:
    @pytest.mark.parametrize(
        "change, plain",
        [
            ({"unique": True}, {}),
            ({"unique": False}, {}),
            ({"prepareUnique": True}, {}),
            ({"hidden": True}, {}),
            ({"expireAfterSeconds": 0}, {"expireAfterSeconds": NEVER_SECONDS}),
            ({"expireAfterSeconds": 3600.5}, {"expireAfterSeconds": NEVER_SECONDS}),
            (
                {"unique": True, "hidden": True, "expireAfterSeconds": 1},
                {"expireAfterSeconds": NEVER_SECONDS},
            ),
            (KEPT, KEPT),
        ],
    )
    def test_an_index_refuses_and_deletes_nothing(self, change: Document, plain: Document) -> None:
        assert stand_in(spec(index(**change))).indexes == {"i": index(**plain)}

    @pytest.mark.parametrize(
        "options, plain",
        [
            ({}, {}),
            ({"capped": True, "size": 4096}, {"capped": True, "size": CAPPED_ROOM}),
            ({"capped": True, "size": 1, "max": 3}, {"capped": True, "size": CAPPED_ROOM}),
            (
                {"clusteredIndex": {"key": {"_id": 1}}, "expireAfterSeconds": 5},
                {"clusteredIndex": {"key": {"_id": 1}}},
            ),
            ({"temp": True}, {}),
            ({"autoIndexId": True, "idIndex": index("_id_")}, {"idIndex": index("_id_")}),
            (
                {"validator": {"a": 1}, "collation": {"locale": "de"}},
                {"validator": {"a": 1}, "collation": {"locale": "de"}},
            ),
        ],
    )
    def test_a_collection_keeps_every_document(self, options: Document, plain: Document) -> None:
        made = stand_in(spec(options=options)).options
        assert (made, list(made)) == (plain, list(plain))

    def test_a_view_is_its_own_stand_in(self) -> None:
        options = {"viewOn": "c", "max": 1, "expireAfterSeconds": 1}
        definition = spec(options=options, kind=Kind.VIEW)
        assert stand_in(definition) is definition

    def test_measurements_do_not_expire(self) -> None:
        options = {"timeseries": {"timeField": "at"}, "expireAfterSeconds": 1}
        made = stand_in(spec(options=options, kind=Kind.TIME_SERIES))
        assert made.options == {"timeseries": {"timeField": "at"}}

    def test_the_definition_is_not_modified(self) -> None:
        unique = index(unique=True, expireAfterSeconds=1)
        definition = spec(unique, options={"capped": True, "size": 1, "max": 2})
        stand_in(definition)
        assert unique == index(unique=True, expireAfterSeconds=1)
        assert definition.options == {"capped": True, "size": 1, "max": 2}

    def test_the_stand_in_of_a_stand_in_is_itself(self) -> None:
        definition = spec(
            index("a", unique=True, expireAfterSeconds=5),
            index("b"),
            options={"capped": True, "size": 1, "max": 2},
        )
        assert stand_in(stand_in(definition)) == stand_in(definition)

    def test_name_and_uuid_stay(self) -> None:
        made = stand_in(spec(index(unique=True)))
        assert (made.namespace, made.uuid) == (Namespace("shop", "orders"), bytes(16))


UNIQUE, PLAIN = index("unique", unique=True), index("plain")
# Pairs of indexes that can coexist, and the names of those that cannot be built beside the other's stand-in.
TWINS: list[tuple[Document, Document, set[str]]] = [
    (UNIQUE, PLAIN, {"plain"}),
    (PLAIN, UNIQUE, {"plain"}),
    (UNIQUE, index("plain", hidden=True), {"plain"}),
    (UNIQUE, index("ttl", expireAfterSeconds=5), {"ttl"}),
    (UNIQUE, index("plain", key=SON(a=1)), {"plain"}),
    (UNIQUE, index("plain", key={"a": 1.0}), {"plain"}),
    (index("u", unique=True, sparse=True), index("p", sparse=True), {"p"}),
    (UNIQUE, index("sparse", sparse=True), set()),
    (UNIQUE, index("down", key={"a": -1}), set()),
    (UNIQUE, index("two", key={"a": 1, "b": 1}), set()),
    (index("ab", key={"a": 1, "b": 1}, unique=True), index("ba", key={"b": 1, "a": 1}), set()),
    (UNIQUE, index("collated", collation={"locale": "de"}), set()),
    (UNIQUE, index("partial", partialFilterExpression={"a": 1}), set()),
    (UNIQUE, index("hashed", key={"a": "hashed"}), set()),
    (
        index("u", unique=True, partialFilterExpression={"s": 1}),
        index("v", unique=True, partialFilterExpression={"s": 2}),
        set(),
    ),
    (
        index("p", partialFilterExpression={"s": 1}),
        index("q", partialFilterExpression={"s": 2}),
        set(),
    ),
]


class TestTwins:
    @pytest.mark.parametrize("one, other, deferred", TWINS)
    def test_an_index_equal_to_another_without_unique_is_deferred(
        self, one: Document, other: Document, deferred: set[str]
    ) -> None:
        definition = spec(one, other)
        assert deferred_names(definition) == deferred
        assert set(stand_in(definition).indexes) == {one["name"], other["name"]} - deferred

    @pytest.mark.parametrize("sparse", [False, 0])
    def test_sparse_false_equals_a_missing_sparse(self, sparse: object) -> None:
        definition = spec(index("unique", unique=True, sparse=sparse), PLAIN)
        assert deferred_names(definition) == {"plain"}

    def test_an_equal_filter_may_have_another_order_of_fields(self) -> None:
        filters = [{"a": 1, "b": 1}, {"b": 1, "a": 1}]
        unique = index("unique", unique=True, partialFilterExpression=filters[0])
        plain = index("plain", partialFilterExpression=filters[1])
        assert deferred_names(spec(unique, plain)) == {"plain"}

    def test_wildcard_indexes_of_different_fields_are_not_deferred(self) -> None:
        one, other = (
            index(name, key={"$**": 1}, wildcardProjection={name: 1}) for name in ("x", "y")
        )
        assert deferred_names(spec(one, other)) == set()

    def test_one_of_several_equal_indexes_is_built(self) -> None:
        definition = spec(PLAIN, UNIQUE, index("sparse", sparse=True), index("b", key={"b": 1}))
        assert deferred_names(definition) == {"plain"}

    def test_without_indexes_none_is_deferred(self) -> None:
        assert deferred_names(spec()) == frozenset()

    def test_a_ttl_index_of_a_time_series_is_deferred(self) -> None:
        """Servers refuse a collMod of the expiration of such an index."""
        ttl = index("ttl", key={"control.min.at": 1}, expireAfterSeconds=5)
        definition = spec(PLAIN, ttl, kind=Kind.TIME_SERIES)
        assert set(stand_in(definition).indexes) == {"plain"}
        assert list(weakenings(definition)) == [{"dropIndexes": "orders", "index": "ttl"}]
        assert list(expirations(definition, stand_in(definition))) == []
        assert deferred_indexes(definition) == [ttl]

    def test_indexes_that_only_an_earlier_version_deferred_are_built_as_prepared(self) -> None:
        active, trial = (
            index(name, unique=True, partialFilterExpression={"state": name}, expireAfterSeconds=5)
            for name in ("active", "trial")
        )
        definition = spec(active, trial, PLAIN, UNIQUE)
        assert earlier_indexes(definition) == [prepared(definition).indexes["trial"]]
        assert deferred_indexes(definition) == [PLAIN]
        assert earlier_indexes(spec(active, index("other", key={"b": 1}))) == []


@pytest.mark.parametrize(
    "given, collated, added",
    [
        ({}, False, {}),
        ({}, True, {"collation": {"locale": "simple"}}),
        ({"v": 1}, True, {}),
        ({"collation": {"locale": "de"}}, True, {}),
        ({"collation": {"locale": "de"}}, False, {}),
    ],
)
def test_a_simple_collation_is_explicit_if_it_would_be_inherited(
    given: Document, collated: bool, added: Document
) -> None:
    assert creatable(index(**given), collated) == index(**given, **added)


class TestPreparations:
    @pytest.mark.parametrize(
        "options, commands",
        [
            ({}, []),
            ({"validator": {"a": 1}}, []),
            ({"capped": True, "size": 4096}, [{"collMod": "orders", "cappedSize": 4096}]),
            (
                {"capped": True, "size": 4096, "max": 3},
                [
                    {"collMod": "orders", "cappedSize": 4096},
                    {"collMod": "orders", "cappedMax": 3},
                ],
            ),
            ({"expireAfterSeconds": 0}, []),
        ],
    )
    def test_options_are_restored(self, options: Document, commands: list[Document]) -> None:
        assert list(preparations(spec(options=options))) == commands

    @pytest.mark.parametrize(
        "fields, commands",
        [
            ({}, []),
            ({"unique": False}, []),
            ({"unique": True}, [modify("i", prepareUnique=True)]),
            ({"prepareUnique": True}, [modify("i", prepareUnique=True)]),
            ({"expireAfterSeconds": 0}, []),
            ({"hidden": True}, [modify("i", hidden=True)]),
            ({"hidden": False}, []),
            (
                {"unique": True, "expireAfterSeconds": 5, "hidden": True},
                [modify("i", prepareUnique=True), modify("i", hidden=True)],
            ),
        ],
    )
    def test_an_index_is_restored(self, fields: Document, commands: list[Document]) -> None:
        assert list(preparations(spec(index(**fields)))) == commands

    def test_a_deferred_index_is_not_prepared(self) -> None:
        definition = spec(UNIQUE, index("ttl", expireAfterSeconds=5, hidden=True))
        assert list(preparations(definition)) == [modify("unique", prepareUnique=True)]


class TestPrepared:
    @pytest.mark.parametrize(
        "fields, prepared_fields",
        [
            ({}, {}),
            ({"unique": True}, {"prepareUnique": True}),
            ({"unique": True, "prepareUnique": True}, {"prepareUnique": True}),
            ({"prepareUnique": True, "hidden": True}, {"prepareUnique": True, "hidden": True}),
            ({"expireAfterSeconds": 5}, {"expireAfterSeconds": NEVER_SECONDS}),
        ],
    )
    def test_an_index_becomes_unique_last(
        self, fields: Document, prepared_fields: Document
    ) -> None:
        assert prepared(spec(index(**fields))).indexes == {"i": index(**prepared_fields)}

    def test_a_prepared_definition_lacks_deferred_indexes(self) -> None:
        definition = spec(UNIQUE, PLAIN, options={"capped": True, "size": 4096, "max": 3})
        assert prepared(definition).indexes == {"unique": index("unique", prepareUnique=True)}
        assert prepared(definition).options == definition.options

    def test_documents_do_not_expire_yet(self) -> None:
        definition = spec(options={"expireAfterSeconds": 5, "validator": {"a": 1}})
        assert prepared(definition).options == {"validator": {"a": 1}}


class TestExpirations:
    ALL = spec(
        index("ttl", expireAfterSeconds=5),
        index("b", key={"b": 1}),
        options={"expireAfterSeconds": 7},
    )

    def test_the_expiration_of_the_source_is_restored(self) -> None:
        assert list(expirations(self.ALL, stand_in(self.ALL))) == [
            {"collMod": "orders", "expireAfterSeconds": 7},
            modify("ttl", expireAfterSeconds=5),
        ]

    @pytest.mark.parametrize(
        "present",
        [
            spec(index("ttl", expireAfterSeconds=6), options={"expireAfterSeconds": 8}),
            spec(index("ttl"), options={"expireAfterSeconds": 8}),
            spec(options={"expireAfterSeconds": 8}),
        ],
    )
    def test_a_change_of_users_stays(self, present: CollectionSpec) -> None:
        assert list(expirations(self.ALL, present)) == []

    def test_a_deferred_index_is_left_alone(self) -> None:
        definition = spec(UNIQUE, index("ttl", expireAfterSeconds=5))
        assert list(expirations(definition, stand_in(definition))) == []


class TestWeakenings:
    @pytest.mark.parametrize(
        "options, commands",
        [
            ({}, []),
            ({"validator": {"a": 1}}, []),
            ({"capped": True, "size": 4096}, [{"collMod": "orders", "cappedSize": CAPPED_ROOM}]),
            (
                {"capped": True, "size": 4096, "max": 3},
                [
                    {"collMod": "orders", "cappedSize": CAPPED_ROOM},
                    {"collMod": "orders", "cappedMax": -1},
                ],
            ),
            ({"expireAfterSeconds": 5}, [{"collMod": "orders", "expireAfterSeconds": "off"}]),
        ],
    )
    def test_a_collection_keeps_every_document(
        self, options: Document, commands: list[Document]
    ) -> None:
        assert list(weakenings(spec(options=options))) == commands

    @pytest.mark.parametrize(
        "fields, commands",
        [
            ({}, []),
            ({"unique": False, "hidden": False, "prepareUnique": False}, []),
            (KEPT, []),
            ({"unique": True}, [modify("i", forceNonUnique=True)]),
            ({"prepareUnique": True}, [modify("i", prepareUnique=False)]),
            ({"expireAfterSeconds": 5}, [modify("i", expireAfterSeconds=NEVER_SECONDS)]),
            ({"hidden": True}, [modify("i", hidden=False)]),
            (
                {"unique": True, "hidden": True, "expireAfterSeconds": 5},
                [
                    modify("i", forceNonUnique=True),
                    modify("i", expireAfterSeconds=NEVER_SECONDS),
                    modify("i", hidden=False),
                ],
            ),
        ],
    )
    def test_an_index_refuses_and_deletes_nothing(
        self, fields: Document, commands: list[Document]
    ) -> None:
        assert list(weakenings(spec(index(**fields)))) == commands

    def test_a_deferred_index_is_dropped_before_the_others_are_weakened(self) -> None:
        assert list(weakenings(spec(UNIQUE, index("ttl", expireAfterSeconds=5)))) == [
            {"dropIndexes": "orders", "index": "ttl"},
            modify("unique", forceNonUnique=True),
        ]


class TestConversions:
    @pytest.mark.parametrize(
        "indexes, commands",
        [
            ([], []),
            ([PLAIN], []),
            ([index(prepareUnique=True)], []),
            ([UNIQUE], [modify("unique", unique=True)]),
            (
                [UNIQUE, index("b", key={"b": 1}, unique=True)],
                [modify("unique", unique=True), modify("b", unique=True)],
            ),
        ],
    )
    def test_unique_indexes_are_made_unique(
        self, indexes: list[Document], commands: list[Document]
    ) -> None:
        assert list(conversions(spec(*indexes))) == commands

    def test_a_deferred_index_is_built_after_the_conversions(self) -> None:
        ttl = index("ttl", expireAfterSeconds=5, hidden=True)
        assert list(conversions(spec(ttl, UNIQUE))) == [modify("unique", unique=True)]
        assert deferred_indexes(spec(ttl, UNIQUE)) == [ttl]

    def test_a_deferred_index_has_an_explicit_collation(self) -> None:
        definition = spec(UNIQUE, PLAIN, options={"collation": {"locale": "de"}})
        assert deferred_indexes(definition) == [{**PLAIN, "collation": {"locale": "simple"}}]


class TestServing:
    @pytest.mark.parametrize("fields", [{"unique": True}, {"prepareUnique": True}])
    @pytest.mark.parametrize("unique", [True, False])
    def test_the_index_is_relaxed_but_unique_if_the_shard_key_is(
        self, fields: Document, unique: bool
    ) -> None:
        definition = replace(
            spec(index(expireAfterSeconds=5, **fields)),
            shard_key={"key": {"a": 1}, "unique": unique},
        )
        expected = index(expireAfterSeconds=NEVER_SECONDS)
        assert stand_in(definition).indexes == {"i": expected}
        assert serving(definition) == ({**expected, "unique": True} if unique else expected)

    def test_the_id_index_needs_no_other(self) -> None:
        definition = replace(spec(), shard_key={"key": {"_id": 1}, "unique": True})
        assert serving(definition) is None


PROPERTIES = [
    {"unique": True},
    {"prepareUnique": True},
    {"hidden": True},
    {"expireAfterSeconds": 5},
    {"unique": True, "hidden": True, "expireAfterSeconds": 5},
]


def after(built: dict[str, Document], command: Document) -> dict[str, Document]:
    """Return the indexes that a server has, by name, after the collMod `command` of one of the indexes in `built`.

    Raise AssertionError if the index becomes unique, but is not prepared for that (`prepareUnique`).
    """
    name, changes = (command["index"]["name"], {**command["index"]})
    changed = built[name] | changes
    if changes.get("unique"):
        is_prepared = changed.pop("prepareUnique", False)
        assert is_prepared, "error 72: an index must be prepared to become unique"
    return built | {name: changed}


@pytest.mark.parametrize("fields", PROPERTIES)
@pytest.mark.parametrize("twin", [None, index("twin"), index("other", key={"b": 1}, unique=True)])
def test_every_index_is_restored_after_the_conversions(
    fields: Document, twin: Document | None
) -> None:
    definition = spec(*([index(**fields)] if twin is None else [index(**fields), twin]))
    built = dict(stand_in(definition).indexes)
    for command in preparations(definition):
        built = after(built, command)
    present = replace(definition, indexes=built)
    for command in [*expirations(definition, present), *conversions(definition)]:
        built = after(built, command)
    assert (
        built | {each["name"]: each for each in deferred_indexes(definition)} == definition.indexes
    )
