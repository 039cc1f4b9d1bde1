"""Compares a source with a destination on which collections have other names. Shares no code with the product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from syncsvc.sandbox.document_merge import LENIENT, RAW, any_collection
from syncsvc.sandbox.equality import MOST_COLLECTIONS
from tests.support.pair import Pair, assert_none
from tests.support.writes import AnyClient

_OF_SERVERS = ("system.views", "system.profile")
_NOT_COMPARED = ("admin", "config", "local", "mongosync_reserved", "__mdb_internal")

# The collections of `fill_exchanged`.
EXCHANGED = ("d.a", "d.b", "e.a", "e.b")

# The options of a collection or view, its indexes by name, and its documents, as BSON.
Content = tuple[dict[str, Any], dict[str, bytes], list[bytes]]


def remap(names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the start option `namespaceRemap` for a mapping from names on the source to new names.

    A name is `d.c`, or `d` for a whole database.
    """
    return [{"from": _named(here), "to": _named(there)} for here, there in names.items()]


def _named(name: str) -> dict[str, str]:
    database, _, collection = name.partition(".")
    return {"database": database, **({"collection": collection} if collection else {})}


def fill_exchanged(client: AnyClient) -> None:
    """Insert documents into the collections a and b of the databases d and e, for tests that exchange their names."""
    for name in EXCHANGED:
        client.get_database(name[0])[name[2:]].insert_many(
            {"_id": n, "of": name} for n in range(20)
        )


def change_exchanged(client: AnyClient) -> None:
    """Write to the collections of `fill_exchanged`, add indexes, rename some of them, and replace one by `$out`."""
    for name in EXCHANGED:
        c = client.get_database(name[0])[name[2:]]
        c.update_many({"_id": {"$gt": 10}}, {"$set": {"changed": name}})
        c.create_index("changed")
    client.d.b.rename("c")
    client.d.a.rename("b")
    client.d.c.rename("a")
    client.e.b.aggregate([{"$out": "a"}])
    client.e.a.insert_one({"_id": "last"})


def assert_renamed(
    pair: Pair,
    names: Mapping[str, str],
    views: Mapping[str, Mapping[str, Any]] = {},
    left_out: tuple[str, ...] = (),
) -> None:
    """Fail unless the destination contains exactly the collections of the source, renamed as `names` says.

    The collections must also have the same options, indexes and documents, and the views the same options.
    `names` is a mapping as for `remap`. `views` maps the destination name of a view to the options that must differ
    there. `left_out` contains the collections of the source that the destination must not contain.
    """
    assert_none([*differences(pair, names, views, left_out)])


def differences(
    pair: Pair,
    names: Mapping[str, str],
    views: Mapping[str, Mapping[str, Any]] = {},
    left_out: tuple[str, ...] = (),
) -> Iterator[str]:
    source, destination = contents(pair.source.client), contents(pair.destination.client)
    expected = {_renamed(name, names): name for name in source if name not in left_out}
    assert len(expected) == len(source) - len(left_out) > 0
    for there, here in sorted(expected.items()):
        if there not in destination:
            yield f"{here}: {there} is missing"
            continue
        wanted, found = source[here], destination[there]
        options = {**wanted[0], **views.get(there, {})}
        if options != found[0]:
            yield f"{there}: options {found[0]}, not {options}"
        if wanted[1] != found[1]:
            yield f"{there}: indexes {sorted(found[1])} differ from {sorted(wanted[1])}"
        if wanted[2] != found[2]:
            lacking, added = {*wanted[2]} - {*found[2]}, {*found[2]} - {*wanted[2]}
            yield f"{there}: {len(lacking)} documents are missing or differ, {len(added)} are extra or differ"
    yield from (f"{there} is extra" for there in destination.keys() - expected.keys())


def _renamed(name: str, names: Mapping[str, str]) -> str:
    database, _, collection = name.partition(".")
    if collection.startswith("system.buckets."):
        owner = _renamed(f"{database}.{collection.removeprefix('system.buckets.')}", names)
        return owner.replace(".", ".system.buckets.", 1)
    if name in names:
        return names[name]
    return f"{names.get(database, database)}.{collection}"


def contents(client: AnyClient) -> dict[str, Content]:
    """Return the content of each user collection and view, by name.

    Buckets are left out if their time-series collection does not exist: a refused command can leave such buckets
    behind.
    """
    found = {}
    for database in client.list_database_names():
        if not database.startswith(_NOT_COMPARED):
            rows = {each["name"]: each for each in _rows(client, database)}
            for name, row in rows.items():
                if name.removeprefix("system.buckets.") in rows and name not in _OF_SERVERS:
                    # The deprecated option `autoIndexId` is not synced: what counts are the indexes.
                    row["options"].pop("autoIndexId", None)
                    found[f"{database}.{name}"] = (row["options"], *_data(client, database, row))
    return found


def _rows(client: AnyClient, database: str) -> list[dict[str, Any]]:
    # The driver's list_collections() does not use the codec options.
    command = {"listCollections": 1, "cursor": {"batchSize": MOST_COLLECTIONS}}
    cursor = client[database].command(command, codec_options=LENIENT)["cursor"]
    assert cursor["id"] == 0
    rows: list[dict[str, Any]] = cursor["firstBatch"]
    return rows


def _data(
    client: AnyClient, database: str, row: Mapping[str, Any]
) -> tuple[dict[str, bytes], list[bytes]]:
    if row["type"] != "collection":
        # The documents of a time-series collection are those of its buckets, which have their own row.
        return {}, []
    name = row["name"]
    listed = client[database].command({"listIndexes": name}, codec_options=RAW)
    indexes = {each["name"]: each.raw for each in listed["cursor"]["firstBatch"]}
    order = "$natural" if row["options"].get("capped") else "_id"
    documents = any_collection(client.get_database(database, RAW), name).find(sort=[(order, 1)])
    return indexes, [each.raw for each in documents]
