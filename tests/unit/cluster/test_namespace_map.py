"""Names on the source and names on the destination are mapped to each other, one to one.

Entries that contradict each other are refused, and so are namespaces and definitions that cannot be mapped.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import (
    NamespaceMap,
    case_collisions,
    collision,
    contradictions,
    entries_of,
    obstacles,
    renamed,
    reverse_collision,
    reverse_contradictions,
)
from verifier.cluster.references import NotRewritable
from verifier.cluster.specification import CollectionSpec, Kind

# Each example: the renamed namespaces, and the names on the source with those on the destination.
EXAMPLES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "nothing": ({}, {"d.a": "d.a"}),
    "a collection into another database": ({"d.a": "x.b"}, {"d.a": "x.b", "d.c": "d.c"}),
    "a collection within its database": ({"d.a": "d.b"}, {"d.a": "d.b", "d.c": "d.c"}),
    "a database": ({"e": "f"}, {"e.a": "f.a", "e.b": "f.b", "g.a": "g.a"}),
    # Only a sync that is not reversible may include f.a: see `test_a_name_that_cannot_be_mapped_back_is_named`.
    "a collection apart from its database": (
        {"e": "f", "e.a": "g.a"},
        {"e.a": "g.a", "e.b": "f.b", "f.a": "f.a"},
    ),
    "two collections exchange their names": (
        {"d.a": "d.b", "d.b": "d.a"},
        {"d.a": "d.b", "d.b": "d.a"},
    ),
    "two databases exchange their names": ({"d": "e", "e": "d"}, {"d.a": "e.a", "e.a": "d.a"}),
    "a chain": ({"d.a": "d.b", "d.b": "d.c"}, {"d.a": "d.b", "d.b": "d.c", "d.e": "d.e"}),
    "a chain of databases": ({"d": "e", "e": "f"}, {"d.a": "e.a", "e.a": "f.a"}),
    "buckets follow their collection": (
        {"d.a": "x.b"},
        {"d.system.buckets.a": "x.system.buckets.b", "d.system.buckets.c": "d.system.buckets.c"},
    ),
    "a name with a dot": ({"d.a.b": "d.c"}, {"d.a.b": "d.c", "d.a": "d.a"}),
}
ROWS = [
    pytest.param(renamed, here, there, id=f"{name}: {here}")
    for name, (renamed, names) in EXAMPLES.items()
    for here, there in names.items()
]


def named(text: str) -> Namespace:
    return Namespace(*text.partition(".")[::2])


def mapping(renamed: dict[str, str]) -> NamespaceMap:
    return NamespaceMap({named(here): named(there) for here, there in renamed.items()})


@pytest.mark.parametrize("entries, here, there", ROWS)
def test_names_are_mapped_in_both_directions(
    entries: dict[str, str], here: str, there: str
) -> None:
    names = mapping(entries)
    assert names.to_destination(named(here)) == named(there)
    assert names.to_source(named(there)) == named(here)
    assert not names.is_taken(named(here))


@pytest.mark.parametrize(
    "entries, taken, stray",
    [
        ({"d.a": "x.b"}, "x.b", "d.a"),
        ({"e": "f"}, "f.z", "e.z"),
        ({"d.a": "d.b", "d.b": "d.c"}, "d.c", "d.a"),
        ({"e": "f", "e.a": "g.a"}, "g.a", "e.a"),
        ({"d.a": "x.b"}, "x.system.buckets.b", "d.system.buckets.a"),
    ],
)
def test_a_taken_name_is_paired_with_the_name_that_is_free(
    entries: dict[str, str], taken: str, stray: str
) -> None:
    names = mapping(entries)
    assert names.is_taken(named(taken))
    assert names.to_destination(named(taken)) == named(stray)
    assert names.to_source(named(stray)) == named(taken)


NAMES = st.builds(Namespace, st.sampled_from("defx"), st.sampled_from("abc"))
ENTRIES = st.dictionaries(
    st.builds(Namespace, st.sampled_from("defx"), st.sampled_from(["", "a", "b", "c"])),
    st.builds(Namespace, st.sampled_from("defx"), st.sampled_from(["", "a", "b", "c"])),
    max_size=4,
).filter(
    lambda entries: not [*contradictions([*entries.items()])]
    and all(bool(here.collection) == bool(there.collection) for here, there in entries.items())
)


@given(ENTRIES, NAMES)
def test_every_map_is_one_to_one(entries: dict[Namespace, Namespace], name: Namespace) -> None:
    names = NamespaceMap(entries)
    assert names.to_source(names.to_destination(name)) == name
    # The reverse direction has the same pairs.
    assert names.inverse.to_destination(name) == names.to_source(name)
    assert names.inverse.to_source(name) == names.to_destination(name)
    assert names.inverse.inverse == names
    assert names.to_destination(names.to_source(name)) == name


@given(ENTRIES, NAMES)
def test_only_a_taken_name_is_mapped_although_no_entry_renames_it(
    entries: dict[Namespace, Namespace], name: Namespace
) -> None:
    names = NamespaceMap(entries)
    has_entry = name in entries or Namespace(name.database, "") in entries
    changes = names.to_destination(name) != name
    assert not changes or has_entry or names.is_taken(name)


# With these entries, e.a is not renamed. After a reverse, it would become d.a, the old name of f.a.
GAP = {Namespace("d", ""): Namespace("e", ""), Namespace("d", "a"): Namespace("f", "a")}


@given(ENTRIES, NAMES)
@example(GAP, Namespace("e", "a"))
def test_a_namespace_that_can_be_synced_reversibly_can_be_synced_back(
    entries: dict[Namespace, Namespace], name: Namespace
) -> None:
    names = NamespaceMap(entries)
    there = names.to_destination(name)
    if not names.is_taken(name) and reverse_collision(name, names) is None:
        assert collision(there, names.inverse) is None
        assert names.inverse.to_destination(there) == name
        # The sync can be reversed again.
        assert reverse_collision(there, names.inverse) is None
        # Views are rewritten only in databases for which `renames_within` is true. A view that was not rewritten must
        # not be rewritten when it is synced back, either.
        if not names.renames_within(name.database):
            assert not names.inverse.renames_within(there.database)
        assert name.database in names.inverse.databases(there.database)


@given(ENTRIES, NAMES)
def test_a_namespace_that_can_be_synced_is_in_one_of_the_databases_of_its_database(
    entries: dict[Namespace, Namespace], name: Namespace
) -> None:
    names = NamespaceMap(entries)
    if not names.is_taken(name):
        assert names.to_destination(name).database in names.databases(name.database)


@given(ENTRIES, NAMES)
@example(GAP, Namespace("e", "a"))
def test_only_an_unrenamed_namespace_cannot_be_synced_back(
    entries: dict[Namespace, Namespace], name: Namespace
) -> None:
    """A namespace that cannot be synced back after a reverse must be one that is not renamed.

    With the inverse map, which a reversed sync uses, there must be no such namespace.
    """
    names = NamespaceMap(entries)
    if not names.is_taken(name) and reverse_collision(name, names) is not None:
        assert names.to_destination(name) == name
    if not names.inverse.is_taken(name):
        assert reverse_collision(name, names.inverse) is None


@pytest.mark.parametrize(
    "entries, name, expected",
    [
        (
            {"e": "f", "e.a": "g.a"},
            "f.a",
            "reversible is true, but f.a could not be synced back: with namespaceRemap, a reversed sync would map f.a "
            "to e.a, the old name of g.a.",
        ),
        (
            {"e": "f", "e.a": "g.a"},
            "f.system.buckets.a",
            "reversible is true, but f.system.buckets.a could not be synced back: with namespaceRemap, a reversed "
            "sync would map f.a to e.a, the old name of g.a.",
        ),
        ({"e": "f", "e.a": "g.a"}, "e.a", None),
        ({"e": "f", "e.a": "g.a"}, "e.b", None),
        ({"d": "e", "e": "d"}, "d.a", None),
        ({}, "d.a", None),
    ],
)
def test_a_name_that_cannot_be_mapped_back_is_named(
    entries: dict[str, str], name: str, expected: str | None
) -> None:
    names = mapping(entries)
    assert collision(named(name), names) is None
    assert reverse_collision(named(name), names) == expected
    assert names.inverse.is_taken(names.to_destination(named(name))) == (expected is not None)


@pytest.mark.parametrize(
    "entries, name, expected",
    [
        (
            {"d.a": "e.a"},
            "d.a",
            "d.a would keep its name on the destination, but with namespaceRemap, e.a has this name there.",
        ),
        (
            {"d": "e"},
            "d.z",
            "d.z would keep its name on the destination, but with namespaceRemap, e.z has this name there.",
        ),
        # A sync that is not reversible may sync this name in the first direction (see EXAMPLES).
        (
            {"d": "e", "d.a": "f.a"},
            "e.a",
            "e.a would be renamed to d.a with its database, but with namespaceRemap, f.a has this name on the "
            "destination.",
        ),
        ({"d": "e", "d.a": "f.a"}, "e.b", None),
        ({"d": "e", "e": "d"}, "d.a", None),
    ],
)
def test_a_namespace_that_collides_after_a_reverse_is_named(
    entries: dict[str, str], name: str, expected: str | None
) -> None:
    assert collision(named(name), mapping(entries).inverse) == expected


def test_databases_that_a_reversed_sync_could_not_create_are_named() -> None:
    entries = [(named(one), named(other)) for one, other in [("d.a", "x.a"), ("D.b", "y.b")]]
    assert [*reverse_contradictions(entries)] == [
        "reversible is true, but namespaceRemap[0] and namespaceRemap[1] rename namespaces of databases whose names "
        "differ only in case. A reversed sync might have to create both databases on one cluster, which servers refuse."
    ]
    assert not [*reverse_contradictions(entries[:1])]


@pytest.mark.parametrize(
    "entries, database, expected",
    [
        ({}, "d", {"d"}),
        ({"d": "e"}, "d", {"e"}),
        ({"d": "e", "d.a": "f.a"}, "d", {"e", "f"}),
        ({"d.a": "f.a"}, "d", {"d", "f"}),
        ({"d.a": "f.a"}, "f", {"f"}),
        # f.a is free, because d.a is renamed to g.a.
        ({"d": "f", "d.a": "g.a"}, "f", {"d", "f"}),
    ],
)
def test_the_databases_that_hold_collections_of_a_database(
    entries: dict[str, str], database: str, expected: set[str]
) -> None:
    assert mapping(entries).databases(database) == expected


@pytest.mark.parametrize(
    "entries, expected",
    [
        ([("d.a", "e.a"), ("d.b", "e.b")], []),
        ([("d", "e"), ("d.b", "f.b")], []),
        ([("d.a", "d.b"), ("d.b", "d.a")], []),
        (
            [("d.a", "e.a"), ("d.a", "e.b")],
            ["namespaceRemap[0] and namespaceRemap[1] both rename d.a."],
        ),
        ([("d", "e"), ("d", "f")], ["namespaceRemap[0] and namespaceRemap[1] both rename d."]),
        (
            [("d.a", "e.a"), ("d.b", "e.a")],
            [
                "namespaceRemap[0] and namespaceRemap[1] would both use the name e.a on the destination."
            ],
        ),
        (
            [("d", "e"), ("f", "e")],
            [
                "namespaceRemap[0] and namespaceRemap[1] would both use the name e on the destination."
            ],
        ),
        (
            [("d", "e"), ("f.a", "e.b")],
            [
                "namespaceRemap[0] and namespaceRemap[1] would both use the name e.b on the destination."
            ],
        ),
        (
            [("d", "e"), ("f", "E")],
            [
                "namespaceRemap[0] and namespaceRemap[1] map to databases whose names differ only in case, which "
                "servers refuse."
            ],
        ),
        (
            [("d", "e"), ("d.a", "e.b")],
            [
                "namespaceRemap[0] and namespaceRemap[1] would both use the name e.b on the destination."
            ],
        ),
    ],
)
def test_contradicting_entries_are_named(
    entries: list[tuple[str, str]], expected: list[str]
) -> None:
    assert [*contradictions([(named(one), named(other)) for one, other in entries])] == expected


def test_the_entries_of_a_request() -> None:
    remap = [
        {
            "from": {"database": "a", "collection": "b.c"},
            "to": {"database": "d", "collection": "e"},
        },
        {"from": {"database": "x"}, "to": {"database": "y"}},
    ]
    assert entries_of(remap) == [
        (Namespace("a", "b.c"), Namespace("d", "e")),
        (Namespace("x", ""), Namespace("y", "")),
    ]


def spec(name: str, kind: Kind = Kind.COLLECTION, **options: Any) -> CollectionSpec:
    return CollectionSpec(named(name), kind, options=options)


@pytest.mark.parametrize(
    "entries, definition, expected",
    [
        ({}, spec("d.a"), []),
        ({"d.a": "e.a"}, spec("d.a"), []),
        (
            {"d.a": "e.a"},
            spec("e.a"),
            [
                "e.a would keep its name on the destination, but with namespaceRemap, d.a has this name there."
            ],
        ),
        (
            {"d": "e"},
            spec("e.z", Kind.VIEW, viewOn="a", pipeline=[]),
            [
                "e.z would keep its name on the destination, but with namespaceRemap, d.z has this name there."
            ],
        ),
        ({"d.a": "d.b", "d.b": "d.a"}, spec("d.b"), []),
        ({"d": "e"}, spec("d.v", Kind.VIEW, viewOn="a", pipeline=[{"$new": 1}]), []),
        (
            {"d.a": "e.a"},
            spec("d.v", Kind.VIEW, viewOn="a", pipeline=[]),
            [
                "The view d.v does not fit namespaceRemap: the view would be named d.v, but d.a, "
                "to which the view refers, would be named e.a, and a view cannot refer to another database."
            ],
        ),
        (
            {"d.a": "d.b"},
            spec("d.v", Kind.VIEW, viewOn="c", pipeline=[{"$new": 1}]),
            [
                "The view d.v does not fit namespaceRemap: the view's pipeline has the stage $new, which may refer to "
                "other collections."
            ],
        ),
        (
            {"d": "longer"},
            spec("d." + "a" * 250),
            [
                f"d.{'a' * 250} would be named longer.{'a' * 250}, but servers allow at most 255 bytes for a name (or, "
                "for a time-series collection, for the name of its buckets), not 257."
            ],
        ),
        (
            {"d": "eleven"},
            spec("d." + "a" * 234, Kind.TIME_SERIES),
            [
                f"d.{'a' * 234} would be named eleven.{'a' * 234}, but servers allow at most 255 bytes for a name (or, "
                "for a time-series collection, for the name of its buckets), not 256."
            ],
        ),
        ({"d": "e"}, spec("d.a", encryptedFields={"escCollection": "enxcol_.a.esc"}), []),
        (
            {"d.a": "e.a"},
            spec("d.a", encryptedFields={"escCollection": "enxcol_.a.esc", "fields": []}),
            [
                "d.a has encrypted fields, whose metadata is in d.enxcol_.a.esc; the collection can only "
                "be renamed together with its database."
            ],
        ),
        (
            {"d.enxcol_.a.ecc": "d.other"},
            spec("d.a", encryptedFields={"eccCollection": "enxcol_.a.ecc", "fields": []}),
            [
                "d.a has encrypted fields, whose metadata is in d.enxcol_.a.ecc; the collection can only "
                "be renamed together with its database."
            ],
        ),
        (
            {"d.enxcol_.a.esc": "d.other"},
            spec("d.a", encryptedFields={"escCollection": "enxcol_.a.esc", "fields": []}),
            [
                "d.a has encrypted fields, whose metadata is in d.enxcol_.a.esc; the collection can only "
                "be renamed together with its database."
            ],
        ),
    ],
)
def test_definitions_that_cannot_have_their_names_are_refused(
    entries: dict[str, str], definition: CollectionSpec, expected: list[str]
) -> None:
    names = mapping(entries)
    taken = collision(definition.namespace, names)
    assert [*([] if taken is None else [taken]), *obstacles(definition, names)] == expected


def test_databases_that_differ_only_in_case_are_refused() -> None:
    definitions = [spec("d.a"), spec("shop.a"), spec("other.a")]
    assert [*case_collisions(definitions, mapping({"d": "Shop"}))] == [
        "On the destination, the names of the databases Shop and shop would differ only in case, which servers refuse."
    ]
    assert not [*case_collisions(definitions, mapping({"d": "Shop", "shop": "s"}))]
    assert not [*case_collisions(definitions, mapping({}))]


def test_a_definition_is_unchanged_except_for_its_names() -> None:
    definition = CollectionSpec(named("d.a"), Kind.COLLECTION, b"u", {"x": 1}, {"i": {"name": "i"}})
    assert renamed(definition, mapping({})) is definition
    moved = renamed(definition, mapping({"d.a": "e.b"}))
    assert moved == CollectionSpec(
        named("e.b"), Kind.COLLECTION, b"u", {"x": 1}, {"i": {"name": "i"}}
    )


def test_a_reversed_sync_refuses_a_view_of_a_name_that_it_cannot_map_back() -> None:
    """Rename the view e.v, which refers to a missing collection e.a, with its database e to d.

    The collection e.a cannot become d.a: this is the name that f.a gets back.
    """
    back = mapping({"d": "e", "d.a": "f.a"}).inverse
    view = spec("e.v", Kind.VIEW, viewOn="a", pipeline=[])
    with pytest.raises(NotRewritable, match="e.a, to which the view refers, would be named e.a"):
        renamed(view, back)


def test_a_view_refers_to_the_names_on_the_destination() -> None:
    view = spec(
        "d.v", Kind.VIEW, viewOn="a", pipeline=[{"$unionWith": "b"}], collation={"locale": "en"}
    )
    moved = renamed(view, mapping({"d": "e", "d.v": "f.v", "d.a": "f.c", "d.b": "f.d"}))
    assert (moved.namespace, moved.options["viewOn"]) == (named("f.v"), "c")
    assert [dict(each) for each in moved.options["pipeline"]] == [{"$unionWith": "d"}]
    assert moved.options["collation"] == {"locale": "en"}
