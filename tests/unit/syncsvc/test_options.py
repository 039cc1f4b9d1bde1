"""Options are written as the request that gives them."""

from __future__ import annotations

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
        "sharding": sharding,
    }
