"""Behaviours with views, and with collections that have the name of a view at another time."""

from __future__ import annotations

from bson.datetime_ms import DatetimeMS

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, beside, few_documents, use


def _view(db: AnyDatabase, name: str, on: str, *stages: object) -> None:
    db.command({"create": name, "viewOn": on, "pipeline": list(stages)})


@behaviour(fill=few_documents)
def create_views(db: AnyDatabase) -> None:
    _view(db, "view", "c", {"$match": {"n": {"$gt": 3}}})
    _view(db, "on view", "view")
    _view(db, "on on view", "on view", {"$project": {"pad": 0}})
    _view(db, "on nothing", "missing")
    looked_up = {"from": "on view", "localField": "n", "foreignField": "n", "as": "found"}
    _view(db, "looking up", "c", {"$lookup": looked_up}, {"$unionWith": "view"})
    db.command({"create": "collated", "viewOn": "c", "pipeline": [], "collation": {"locale": "en"}})
    use(db.c, "after")


@behaviour(fill=few_documents)
def drop_views(db: AnyDatabase) -> None:
    _view(db, "lower", "c")
    _view(db, "upper", "lower")
    db.drop_collection("lower")
    _view(db, "gone", "c")
    db.drop_collection("gone")


@behaviour(fill=few_documents)
def drop_what_is_under_views(db: AnyDatabase) -> None:
    _view(db, "view", "c")
    db.drop_collection("c")
    use(db.c, "second life")


@behaviour(fill=few_documents)
def redefine_a_view(db: AnyDatabase) -> None:
    for number in range(3):
        _view(db, "view", "c", {"$match": {"n": number}})
        db.drop_collection("view")
    _view(db, "view", "c", {"$match": {"n": "last"}})


@behaviour(fill=few_documents)
def view_that_became_a_collection(db: AnyDatabase) -> None:
    _view(db, "was view", "c")
    db.drop_collection("was view")
    use(db["was view"], "after")


@behaviour(fill=few_documents)
def collection_that_became_a_view(db: AnyDatabase) -> None:
    db.drop_collection("c")
    use(db.d, "after")
    _view(db, "c", "d")


@behaviour(fill=few_documents)
def collection_that_became_a_view_and_back(db: AnyDatabase) -> None:
    for number in range(2):
        db.drop_collection("c")
        _view(db, "c", "other")
        db.drop_collection("c")
        use(db.c, f"life {number}")


@behaviour(fill=few_documents)
def views_that_changed_places(db: AnyDatabase) -> None:
    _view(db, "a", "b")
    db.drop_collection("a")
    _view(db, "b", "a")


@behaviour(fill=few_documents)
def view_with_a_date_that_few_languages_know(db: AnyDatabase) -> None:
    _view(db, "late", "c", {"$match": {"t": {"$lt": DatetimeMS(2**60)}}})


@behaviour(fill=few_documents)
def drop_a_database_with_views(db: AnyDatabase) -> None:
    other = beside(db)
    use(other.c, "first")
    _view(other, "view", "c")
    _view(other, "upper", "view")
    db.client.drop_database(other.name)
    use(other.view, "second")
