"""Syncs collections whose names the driver refuses, but servers accept: with two adjacent dots, or a dot at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncsvc.source.filling import is_being_filled
from tests.integration.test_preflight import preflight
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.verifier import Verifier
from verifier.cluster.cluster import open_cluster
from verifier.cluster.inventory import find_named
from verifier.cluster.namespace import Namespace

NAMES = ("a..b", "a.")


@pytest.mark.in_turns
@pytest.mark.parametrize("filtered", [False, True])
def test_large_collections_are_synced_and_checked(
    pair: Pair, daemon: Daemon, tmp_path: Path, filtered: bool
) -> None:
    # Only collections of more than 1 MB are measured in detail.
    documents = [{"_id": n, "n": n, "pad": "p" * (1 << 19)} for n in range(4)]
    for name in NAMES:
        pair.source.client.d.command({"insert": name, "documents": documents})
    options: dict[str, Any] = {}
    if filtered:
        query = {"n": {"$gte": 0}}
        elements = [{"database": "d", "collection": each, "filter": query} for each in NAMES]
        options = {"documentFilter": elements}
    found = preflight(daemon, **options)
    assert found["violations"] == []
    daemon.start(**options)
    daemon.commit()
    pair.assert_equal()
    folder = tmp_path / "verifier"
    folder.mkdir()
    with Verifier(pair.source.uri, pair.destination.uri, folder).running() as verifier:
        verifier.assert_passed(verifier.verify(**options))


def test_a_capped_collection_is_not_taken_for_one_that_is_being_filled(pair: Pair) -> None:
    client = open_cluster("source", pair.source.uri, "test").client
    with client:
        for name in NAMES:
            client.d.command({"create": name, "capped": True, "size": 1000})
            capped = find_named(client, Namespace("d", name))
            assert capped is not None and capped.capped
            assert not is_being_filled(client, capped)
