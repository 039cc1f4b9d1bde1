"""Tests a NaturalScan (a read in natural order): it must resume only if record IDs still denote the same documents."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import MongoClient

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from syncsvc.sandbox.replica_set import Client
from syncsvc.source.natural_scan import NaturalScan, ResumePoint
from syncsvc.source.scanned import ScannedCollection
from tests.support.members import folder_of, shut_down, standalone
from tests.support.waiting import wait_for
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.cluster.inventory import find_named
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")
DOCUMENTS = 3000
PAD = "p" * 5000


@contextmanager
def opened(uri: str) -> Iterator[Cluster]:
    cluster = open_cluster("source", uri, "test")
    try:
        yield cluster
    finally:
        cluster.client.close()


def fill(replica_set: ReplicaSet) -> None:
    with replica_set.client(w="majority") as client:
        client.d.c.insert_many({"_id": n, "pad": PAD} for n in range(DOCUMENTS))


def pages(
    cluster: Cluster, resume: ResumePoint | None = None
) -> Iterator[tuple[list[int], ResumePoint | None]]:
    """Scan the collection, and yield the `_id`s of each page with the resume point after it."""
    stop = StopToken()
    definition = find_named(cluster.client, NAME)
    assert definition is not None
    time = append_note(cluster.client, stop)
    scanned = ScannedCollection(cluster.client, NAME, definition.uuid, time)
    scan = NaturalScan(scanned, resume, stop)
    for page, point in scan.pages():
        yield [bson.decode(each)["_id"] for each in page.documents()], point


def two_pages(replica_set: ReplicaSet, checkpoint: bool) -> tuple[list[int], ResumePoint | None]:
    """Return the `_id`s of the first two pages of a scan, and the resume point after them.

    If `checkpoint` is true, the server writes a storage checkpoint between the two pages.
    """
    with opened(replica_set.uri) as cluster, replica_set.client() as client:
        scan = pages(cluster)
        first, _ = next(scan)
        if checkpoint:
            client.admin.command("fsync")
        second, point = next(scan)
        return [*first, *second], point


def the_rest(uri: str, point: ResumePoint | None) -> list[int]:
    with opened(uri) as cluster:
        return [each for page, _ in pages(cluster, point) for each in page]


def copy_files(source: Path, target: Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("mongod.lock", "*.log"))


@pytest.mark.in_turns
@pytest.mark.parametrize("access_control", [False, True])
def test_a_restarted_member_keeps_its_resume_points(access_control: bool) -> None:
    with ReplicaSet(name="restarted", access_control=access_control) as replica_set:
        fill(replica_set)
        found, point = two_pages(replica_set, checkpoint=True)
        for _ in range(2):
            replica_set.restart_member(0)
        assert the_rest(replica_set.uri, point) == list(range(len(found), DOCUMENTS))


def test_a_crash_before_a_checkpoint_invalidates_resume_points() -> None:
    """Crash a server after a resume point was made, before its next storage checkpoint: the scan must start again.

    After such a crash, documents that were inserted since the last checkpoint can have other record IDs.
    """
    with ReplicaSet(name="crashed") as replica_set:
        fill(replica_set)
        found, point = two_pages(replica_set, checkpoint=False)
        assert the_rest(replica_set.uri, point) == list(range(len(found), DOCUMENTS))
        replica_set.restart_member(0)
        assert sorted(the_rest(replica_set.uri, point)) == [*range(DOCUMENTS)]


@pytest.mark.full
def test_replaced_data_files_invalidate_resume_points(tmp_path: Path) -> None:
    """Replace a member's files by a snapshot from before its last start: the scan must start again.

    The address of the member stays the same.
    """
    with ReplicaSet(name="restored") as replica_set:
        fill(replica_set)
        (member,) = replica_set.members
        shut_down(member)
        copy_files(folder_of(member), tmp_path / "snapshot")
        replica_set.restart_member(0)
        _, point = two_pages(replica_set, checkpoint=True)
        shut_down(member)
        copy_files(tmp_path / "snapshot", folder_of(member))
        replica_set.restart_member(0)
        assert the_rest(replica_set.uri, point) == list(range(DOCUMENTS))


@pytest.mark.full
def test_a_scan_misses_nothing_on_a_member_seeded_with_copied_files() -> None:
    with ReplicaSet(name="seeded", members=3) as replica_set:
        fill(replica_set)
        first, second, seeded = replica_set.members
        for each in (first, seeded):
            shut_down(each)
        copy_files(folder_of(first), folder_of(seeded))
        renumber(seeded)
        for number in (0, 2):
            replica_set.restart_member(number)
        make_primary(replica_set, first)
        with opened(replica_set.uri) as cluster:
            scan = pages(cluster)
            found = {*next(scan)[0]}
            make_primary(replica_set, seeded)
            found.update(each for page, _ in scan for each in page)
        assert found == {*range(DOCUMENTS)}


def renumber(member: Mongod) -> None:
    """Insert the documents of a stopped member again in reverse order, so that they get other record IDs."""
    documents: list[dict[str, Any]] = []
    # Record IDs begin at 1 again when a server opens an empty collection.
    for write in ("delete", "insert"):
        with standalone(member) as client:
            if write == "delete":
                documents = list(client.d.c.find())
                client.d.c.delete_many({})
            else:
                client.d.c.insert_many(documents[::-1])


def make_primary(replica_set: ReplicaSet, wanted: Mongod) -> None:
    """Make the member `wanted` the primary of its replica set."""

    def is_primary() -> bool:
        if (primary := replica_set.primary()) is wanted:
            return True
        for each in replica_set.members:
            if each not in (primary, wanted):
                command(each, replSetFreeze=20)
        command(wanted, replSetFreeze=0)
        replica_set.step_down()
        return False

    wait_for(is_primary, f"{wanted.address} is primary")


def command(member: Mongod, **fields: Any) -> None:
    client: Client = MongoClient(f"mongodb://{member.address}/?directConnection=true")
    with client:
        client.admin.command(fields)
