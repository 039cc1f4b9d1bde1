"""Options are written as the request that gives them."""

from __future__ import annotations

import pytest

from syncsvc.options import BuildIndexes, StartOptions, WriteBlocking


def test_the_defaults_are_the_documented_ones() -> None:
    assert StartOptions("cluster0", "cluster1").as_document() == {
        "source": "cluster0",
        "destination": "cluster1",
        "buildIndexes": "beforeDataCopy",
        "enableUserWriteBlocking": "destinationOnly",
        "reversible": False,
        "verification": {"enabled": True},
        "includeNamespaces": [],
        "excludeNamespaces": [],
        "preExistingDestinationData": False,
        "copyInNaturalOrder": [],
        "detectRandomId": True,
        "skipDiskSpaceCheck": False,
    }


def test_every_option_is_written_out() -> None:
    sharding = {"createSupportingIndexes": True, "shardingEntries": []}
    options = StartOptions(
        "a",
        "b",
        BuildIndexes.NEVER,
        WriteBlocking.NONE,
        reversible=True,
        verification=False,
        include_namespaces=({"database": "x"},),
        exclude_namespaces=({"database": "y", "collections": ["z"]},),
        sharding=sharding,
        pre_existing_destination_data=True,
        copy_in_natural_order=({"database": "."},),
        detect_random_id=False,
        skip_disk_space_check=True,
    )
    assert options.as_document() == {
        "source": "a",
        "destination": "b",
        "buildIndexes": "never",
        "enableUserWriteBlocking": "none",
        "reversible": True,
        "verification": {"enabled": False},
        "includeNamespaces": [{"database": "x"}],
        "excludeNamespaces": [{"database": "y", "collections": ["z"]}],
        "preExistingDestinationData": True,
        "copyInNaturalOrder": [{"database": "."}],
        "detectRandomId": False,
        "skipDiskSpaceCheck": True,
        "sharding": sharding,
    }


@pytest.mark.parametrize(
    "build, after_copy, hashed",
    [
        (BuildIndexes.BEFORE_DATA_COPY, False, True),
        (BuildIndexes.AFTER_DATA_COPY, True, True),
        (BuildIndexes.EXCLUDE_HASHED, False, False),
        (BuildIndexes.EXCLUDE_HASHED_AFTER_COPY, True, False),
        (BuildIndexes.NEVER, False, False),
    ],
)
def test_indexes_are_built_before_or_after_the_copy_with_or_without_hashed_ones(
    build: BuildIndexes, after_copy: bool, hashed: bool
) -> None:
    assert (build.after_copy, build.hashed) == (after_copy, hashed)
