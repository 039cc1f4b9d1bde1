"""Behaviours that rename collections, and give the former names to other collections."""

from __future__ import annotations

from tests.support.behaviours.behaviour import (
    AnyDatabase,
    behaviour,
    beside,
    few_documents,
    indexed,
    nothing,
    two_collections,
    use,
)


def _two_in_two_databases(db: AnyDatabase) -> None:
    two_collections(db)
    two_collections(beside(db))


def _move(db: AnyDatabase, name: str, to: AnyDatabase, new: str, drop: bool = False) -> None:
    """Rename the collection `name` to `new` in the database `to`; the driver can rename only within a database.

    If `drop` is true, an existing target is dropped.
    """
    db.client.admin.command(
        {"renameCollection": f"{db.name}.{name}", "to": f"{to.name}.{new}", "dropTarget": drop}
    )


@behaviour(fill=indexed)
def rename(db: AnyDatabase) -> None:
    use(db.c, "before")
    db.c.rename("d")
    use(db.d, "after")
    db.d.create_index("number")


@behaviour(fill=two_collections)
def rename_over_another(db: AnyDatabase) -> None:
    use(db.b, "before")
    db.a.rename("b", dropTarget=True)
    use(db.b, "after")
    db.b.drop_index("of a")


@behaviour(fill=two_collections)
def rename_over_another_and_create_again(db: AnyDatabase) -> None:
    db.a.rename("b", dropTarget=True)
    use(db.a, "new")
    use(db.b, "after")


@behaviour(fill=indexed)
def rename_across_databases(db: AnyDatabase) -> None:
    _move(db, "c", beside(db), "c")
    use(beside(db).c, "after")


@behaviour(fill=_two_in_two_databases)
def rename_across_databases_over_another(db: AnyDatabase) -> None:
    _move(db, "a", beside(db), "b", drop=True)
    use(beside(db).b, "after")
    use(db.a, "new")


@behaviour(fill=nothing)
def rename_odd_collections_across_databases(db: AnyDatabase) -> None:
    db.create_collection("capped", capped=True, size=8192, max=30)
    db.capped.insert_many({"_id": 100 - n} for n in range(50))
    db.create_collection("collated", collation={"locale": "en", "strength": 2})
    db.collated.create_index([("s", 1)], collation={"locale": "simple"}, unique=True, sparse=True)
    db.create_collection("validated", validator={"n": 1}, validationAction="warn")
    db.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    for name in ("capped", "collated", "validated", "images"):
        _move(db, name, beside(db), f"{name} moved")
        use(beside(db)[f"{name} moved"], "after")


@behaviour(fill=indexed)
def rename_across_databases_and_back(db: AnyDatabase) -> None:
    _move(db, "c", beside(db), "c")
    use(beside(db).c, "away")
    _move(beside(db), "c", db, "c")
    use(db.c, "home")


@behaviour(fill=indexed)
def rename_in_a_chain(db: AnyDatabase) -> None:
    use(db.c, "0")
    for number, (name, new) in enumerate((("c", "d"), ("d", "e"), ("e", "f"))):
        db[name].rename(new)
        use(db[new], f"{number + 1}")


@behaviour(fill=two_collections)
def rename_a_chain_of_collections(db: AnyDatabase) -> None:
    """Rename a collection, then another one to its former name; give the name that is free then to a new collection."""
    db.b.rename("c")
    db.a.rename("b")
    use(db.a, "new a")
    use(db.b, "a is b")
    use(db.c, "b is c")


@behaviour(fill=two_collections)
def swap(db: AnyDatabase) -> None:
    db.a.rename("third")
    db.b.rename("a")
    db.third.rename("b")
    use(db.a, "was b")
    use(db.b, "was a")


@behaviour(fill=two_collections)
def swap_twice(db: AnyDatabase) -> None:
    for number in range(2):
        db.a.rename("third")
        db.b.rename("a")
        db.third.rename("b")
        use(db.a, f"a {number}")
        use(db.b, f"b {number}")


@behaviour(fill=indexed)
def rename_in_a_circle(db: AnyDatabase) -> None:
    db.c.rename("d")
    use(db.d, "away")
    db.d.rename("c")
    use(db.c, "home")


@behaviour(fill=indexed)
def rename_and_create_again(db: AnyDatabase) -> None:
    db.c.rename("d")
    use(db.c, "new")
    db.c.create_index("number")
    use(db.d, "old")


@behaviour(fill=indexed)
def rename_and_create_again_twice(db: AnyDatabase) -> None:
    for new in ("d", "e"):
        db.c.rename(new)
        use(db.c, f"after {new}")
    db.drop_collection("d")
    use(db.e, "at last")


@behaviour(fill=two_collections)
def drop_and_rename_to_the_name(db: AnyDatabase) -> None:
    db.drop_collection("b")
    db.a.rename("b")
    use(db.b, "after")


@behaviour(fill=nothing)
def create_and_rename(db: AnyDatabase) -> None:
    use(db.new, "before")
    db.new.create_index("number")
    db.new.rename("newer")
    use(db.newer, "after")


@behaviour(fill=few_documents)
def replace_by_a_new_collection(db: AnyDatabase) -> None:
    """Replace a collection in two steps: build a new collection, and rename it over the old one."""
    for number in range(3):
        use(db.building, f"build {number}")
        db.building.create_index("number")
        db.building.rename("c", dropTarget=True)
        use(db.c, f"life {number}")


@behaviour(fill=two_collections)
def rename_and_drop(db: AnyDatabase) -> None:
    db.a.rename("c")
    db.drop_collection("c")
    db.b.rename("c")
    use(db.c, "after")


@behaviour(fill=_two_in_two_databases)
def rename_out_of_a_dropped_database(db: AnyDatabase) -> None:
    _move(db, "a", beside(db), "saved")
    db.client.drop_database(db.name)
    use(beside(db).saved, "after")


@behaviour(fill=indexed)
def rename_under_a_view(db: AnyDatabase) -> None:
    db.command({"create": "view", "viewOn": "c", "pipeline": []})
    db.c.rename("d")
    use(db.d, "after")


@behaviour(fill=two_collections)
def rename_to_the_name_of_a_view(db: AnyDatabase) -> None:
    db.command({"create": "view", "viewOn": "b", "pipeline": []})
    db.drop_collection("view")
    db.a.rename("view")
    use(db.view, "after")
    db.command({"create": "a", "viewOn": "view", "pipeline": []})
