"""Tests which collections count as temporary ones of the server, so that their rename out of the filter is no error."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.engine.events.renames import is_temporary
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind

UUID = "5c1fbf0e-9b39-4b5a-8a6a-0c6f7d0e2b11"


@pytest.mark.parametrize(
    "name, options, temporary",
    [
        ("c", {}, False),
        ("c", {"temp": True}, True),
        ("tmpAbCdE.renameCollection", {}, True),
        (f"tmp.agg_out.{UUID}", {}, True),
        (f"tmp.agg_out.{UUID}", {"temp": True}, True),
        ("tmp.agg_out.mine", {}, False),
        (f"tmp.agg_out.{UUID}.old", {}, False),
        (f"tmp.agg_out.{UUID.upper()}", {}, False),
        (f"my.tmp.agg_out.{UUID}", {}, False),
    ],
)
def test_a_collection_is_temporary(name: str, options: dict[str, Any], temporary: bool) -> None:
    namespace = Namespace("d", name)
    definition = CollectionSpec(namespace, Kind.COLLECTION, b"1" * 16, options)
    assert is_temporary(CollectionRecord(definition, CopyStatus.DONE, namespace)) is temporary
