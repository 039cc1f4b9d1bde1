"""Tests that a write to the rows of a metadata collection raises an error if the server refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.rows import Rows
from tests.support.pair import Pair
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

UNKNOWN = {"$unknown": 1}


@pytest.mark.parametrize(
    "command",
    [
        {"update": "rows", "updates": [{"q": UNKNOWN, "u": {"$set": {"a": 1}}}]},
        {"delete": "rows", "deletes": [{"q": UNKNOWN, "limit": 1}]},
    ],
)
def test_a_refused_write_is_an_error(pair: Pair, command: dict[str, Any]) -> None:
    stop = StopToken()
    client = pair.destination.client
    rows = Rows(client[METADATA_DATABASE], ClusterWriter(client, False, stop), "rows", stop)
    with pytest.raises(RuntimeError, match="refused to change the collection rows"):
        rows.run(command)
