"""Tests that names which the destination already holds are refused, and the rules for syncs that share a destination.

Also tests the name of the metadata database of a sync with `--syncName`.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from syncsvc.metadata import LONGEST_SYNC_NAME, is_metadata, metadata_database, sync_name
from syncsvc.options import StartOptions
from syncsvc.rules.taken_names import Taken, taken, taken_violations
from syncsvc.running.assembly import own_uuid
from syncsvc.saved.other_syncs import OtherSync, sharing_violations
from syncsvc.state import State
from tests.unit.syncsvc.records import run_record
from verifier.cluster.namespace import Namespace, is_user_database
from verifier.runtime.errors import OperationError

METADATA = "mongosync_reserved_for_internal_use"
ALONE = StartOptions("cluster0", "cluster1")
SHARED = replace(ALONE, pre_existing_destination_data=True)


def names(*texts: str) -> list[Namespace]:
    return [Namespace(*each.split(".", 1)) for each in texts]


@pytest.mark.parametrize(
    "present, needed, expected",
    [
        ((), ("d.a",), []),
        (("d.b", "e.a"), ("d.a",), []),
        (("d.b", "d.a"), ("d.a", "d.c"), ["The destination already holds d.a."]),
        (
            ("D.b",),
            ("d.a", "d.c"),
            [
                "The sync needs the database d, but the destination holds the database D, whose name differs only in "
                "case."
            ],
        ),
    ],
)
def test_taken_names_are_named(
    present: tuple[str, ...], needed: tuple[str, ...], expected: list[str]
) -> None:
    found = taken(names(*present), names(*needed), sharded=False)
    assert [text for _, text in taken_violations(found)] == expected


def test_a_sharded_destination_ignores_the_case_of_all_letters() -> None:
    present, needed = names("Ä.b"), names("ä.a")
    assert taken(present, needed, sharded=False) == Taken()
    assert taken(present, needed, sharded=True) == Taken(databases=(("ä", "Ä"),))


@pytest.mark.parametrize(
    "database, expected",
    [
        (METADATA, True),
        (f"{METADATA}_a", True),
        (f"{METADATA}_a-1_b", True),
        (f"{METADATA}_", False),
        (f"{METADATA}_A", False),
        (f"{METADATA}a", False),
        (f"x{METADATA}_a", False),
        ("mongosync_reserved_for_verification_dst_metadata", False),
        ("shop", False),
    ],
)
def test_metadata_is_known_by_its_name(database: str, expected: bool) -> None:
    assert is_metadata(database) is expected


@pytest.mark.parametrize("name", [None, "a", "a-1_b", "x" * LONGEST_SYNC_NAME])
def test_the_metadata_database_has_the_name_of_the_sync(name: str | None) -> None:
    database = metadata_database(name)
    assert sync_name(database) == name
    assert is_metadata(database) and not is_user_database(database)
    assert len(database) <= 63


OVER = replace(run_record(), options=ALONE, state=State.COMMITTED)


@pytest.mark.parametrize(
    "options, other, expected",
    [
        (SHARED, replace(run_record(), options=SHARED), None),
        (
            ALONE,
            replace(run_record(), options=SHARED),
            "but preExistingDestinationData is false in this",
        ),
        (SHARED, replace(run_record(), options=ALONE), "started with preExisting"),
        (SHARED, OVER, None),
        (
            SHARED,
            replace(OVER, options=replace(ALONE, reversible=True)),
            "started with preExisting",
        ),
        (SHARED, None, "cannot read"),
    ],
)
def test_two_syncs_share_a_destination_only_if_both_allow_it(
    options: StartOptions, other: object, expected: str | None
) -> None:
    others = [OtherSync("x", None if other is None else (other,))]  # type: ignore[arg-type]
    found = [(kind.name, text) for kind, text in sharing_violations(options, others)]
    assert len(found) == (expected is not None)
    for name, text in found:
        assert name == "OtherSyncOnDestination" and expected is not None and expected in text


class _Registry:
    """A registry with one collection, whose UUID on the destination is `uuid`."""

    def __init__(self, uuid: bytes | None) -> None:
        self._record = SimpleNamespace(destination_uuid=uuid)

    def at(self, name: Namespace) -> SimpleNamespace | None:
        return self._record if name == Namespace("d", "c") else None


@pytest.mark.parametrize(
    "options, sharded, name, uuid, expected",
    [
        (ALONE, False, "d.c", b"u", None),
        (ALONE, False, "d.c", None, None),
        (SHARED, False, "d.c", b"u", b"u"),
        (SHARED, False, "d.other", b"u", None),
        (SHARED, False, "d.system.buckets.c", b"u", None),
        (SHARED, True, "d.c", b"u", None),
    ],
)
def test_writes_to_a_shared_destination_name_the_uuid(
    options: StartOptions, sharded: bool, name: str, uuid: bytes | None, expected: bytes | None
) -> None:
    registry: Any = _Registry(uuid)
    (namespace,) = names(name)
    record = replace(run_record(), options=options)
    assert own_uuid(record, sharded, registry, namespace) == expected


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("name", ["d.c", "d.system.buckets.c"])
def test_nothing_is_written_to_a_collection_that_was_not_created(sharded: bool, name: str) -> None:
    registry: Any = _Registry(None)
    (namespace,) = names(name)
    with pytest.raises(OperationError) as raised:
        own_uuid(replace(run_record(), options=SHARED), sharded, registry, namespace)
    assert raised.value.kind.name == "DestinationNamespaceExists"
