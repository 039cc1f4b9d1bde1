"""Tests which changes a Feed records for a check, and when the changes count as saved.

A Feed passes the source's change events to a check. A fake replaces the saved state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import bson
import pytest
from bson.timestamp import Timestamp

from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.feed import Feed
from verifier.compare.rechecks import Rechecks
from verifier.compare.record import CheckRecord, Request, SideRecord
from verifier.compare.store import CheckStore
from verifier.compare.task import Recheck

NAMESPACE = Namespace("d", "c")


def position(time: int) -> Position:
    return Position({"_data": str(time)}, Timestamp(time, 1))


MOST_WAITING = 4 << 20


def key(number: int) -> bytes:
    return bson.encode({"_id": number})


@dataclass
class Saved:
    """A fake of a check's saved state: the record of the check, and the documents and collections to compare again.

    While `fails` is true, adding any of them raises a ConnectionError.
    """

    end: Timestamp | None = None
    fails: bool = False
    rechecks: list[Recheck] = field(default_factory=list)

    @property
    def record(self) -> CheckRecord:
        side = SideRecord(position(1), self.end)
        return CheckRecord("", ("", ""), Request(), 0.0, side, side)

    def add(self, rechecks: Any) -> None:
        listed = list(rechecks)
        if self.fails and listed:
            raise ConnectionError
        self.rechecks.extend(listed)

    @property
    def keys(self) -> list[bytes]:
        return [each.key for each in self.rechecks if each.key]

    @property
    def collections(self) -> set[Namespace]:
        return {each.id.namespace for each in self.rechecks if not each.key}


def opened(saved: Saved, most_waiting: int = MOST_WAITING) -> Feed:
    feed = Feed(most_waiting)
    feed.open(cast(CheckStore, saved), cast(Rechecks, saved))
    return feed


def page(feed: Feed, time: int, *keys: int) -> None:
    feed.page_begins(Timestamp(time, 9))
    for each in keys:
        feed.changed(NAMESPACE, key(each))
    feed.page_ends(position(time), Timestamp(time, 9))


def test_events_before_the_feed_is_opened_are_ignored() -> None:
    feed = Feed(MOST_WAITING)
    page(feed, 1, 1)
    feed.flush()
    assert feed.newest is None and not feed.drained


def test_events_count_from_the_next_page_on() -> None:
    saved, feed = Saved(), Feed(MOST_WAITING)
    feed.page_begins(Timestamp(2, 9))
    feed.open(cast(CheckStore, saved), cast(Rechecks, saved))
    feed.changed(NAMESPACE, key(1))
    feed.page_ends(position(2), Timestamp(2, 9))
    assert feed.newest is None
    page(feed, 3, 2)
    assert feed.newest == Timestamp(3, 9)
    feed.flush()
    assert saved.keys == [key(2)]


def test_a_document_is_saved_once_however_often_it_changed() -> None:
    feed = opened(saved := Saved())
    page(feed, 2, 1, 1, 2)
    page(feed, 3, 1)
    feed.flush()
    assert sorted(saved.keys) == [key(1), key(2)]


def test_the_shard_key_is_no_part_of_the_key() -> None:
    """A shard key can differ between the clusters, and the check relates the changes of the two."""
    feed = opened(saved := Saved())
    feed.page_begins(Timestamp(2, 9))
    for value in (7, 8):
        feed.changed(NAMESPACE, bson.encode({"k": value, "_id": 1}))
    feed.page_ends(position(2), Timestamp(2, 9))
    feed.flush()
    assert saved.keys == [key(1)]


def test_the_position_is_that_of_the_saved_changes() -> None:
    feed = opened(Saved())
    page(feed, 2, 1)
    assert feed.position == position(1)
    feed.flush()
    assert feed.position == position(2)


def test_changes_of_a_failed_save_are_saved_by_the_next_call() -> None:
    feed = opened(saved := Saved(fails=True))
    page(feed, 2, 1)
    with pytest.raises(ConnectionError):
        feed.flush()
    assert feed.position == position(1)
    saved.fails = False
    page(feed, 3, 2)
    feed.flush()
    assert saved.keys == [key(1), key(2)]
    assert feed.position == position(3)


@pytest.mark.parametrize("end, drained", [(None, False), (3, False), (2, True)])
def test_a_feed_is_drained_once_all_changes_to_the_end_are_saved(
    end: int | None, drained: bool
) -> None:
    saved = Saved(None if end is None else Timestamp(end, 1))
    feed = opened(saved)
    page(feed, 3, 1)
    assert not feed.drained
    feed.flush()
    assert feed.drained is drained


def test_the_feed_flushes_when_many_keys_wait() -> None:
    feed = opened(saved := Saved(), most_waiting=10)
    page(feed, 2, 1)
    assert saved.keys == [key(1)]


@pytest.mark.parametrize(
    "operation, namespace, renamed, collections",
    [
        ("create", "c", None, {"c"}),
        ("drop", "c", None, {"c"}),
        ("rename", "c", "b", {"c", "b"}),
        ("shardCollection", "c", None, {"c"}),
        ("create", "system.buckets.c", None, {"c"}),
        ("create", "system.views", None, set()),
        ("modify", "c", None, set()),
        ("createIndexes", "c", None, set()),
    ],
)
def test_a_created_or_dropped_collection_is_compared_again(
    operation: str, namespace: str, renamed: str | None, collections: set[str]
) -> None:
    feed = opened(saved := Saved())
    feed.page_begins(Timestamp(2, 9))
    new = None if renamed is None else Namespace("d", renamed)
    feed.defined(DefinitionEvent(operation, Namespace("d", namespace), None, {}, new, {}))
    feed.page_ends(position(2), Timestamp(2, 9))
    feed.flush()
    assert saved.collections == {Namespace("d", each) for each in collections}


def test_the_feed_reports_its_lag() -> None:
    feed = opened(Saved())
    assert feed.changes().lag_seconds is None
    feed.page_begins(Timestamp(9, 1))
    feed.page_ends(position(2), Timestamp(9, 1))
    assert feed.changes().lag_seconds == 7
