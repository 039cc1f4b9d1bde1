"""Tests what the coordinator says about a commit that is not possible yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.engine.coordinator import Coordinator
from syncsvc.engine.events.unreported import Listing
from syncsvc.figures.progress import Progress, WarningKind
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import run_record
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import StopToken

LISTING = Listing(Timestamp(1, 1), {Namespace("d", "c"): bytes(16)})
WITHHELD, CHANGED = WarningKind.INDEXES_WITHHELD, WarningKind.DEFINITIONS_CHANGED


@pytest.mark.parametrize(
    "found, warning, reason",
    [
        ({}, None, None),
        ({"tried": False}, None, None),
        ({"tried": False}, WITHHELD, "The indexes that are withheld"),
        ({}, WITHHELD, None),
        ({"resharded": {bytes(16)}}, None, "Collections that were resharded"),
        (
            {"unchanged": False, "listing": LISTING},
            None,
            "not applied to the destination yet: d.c.",
        ),
        ({"unchanged": False}, None, "changed definitions on the source has not ended yet."),
        ({"unchanged": False}, CHANGED, None),
    ],
)
def test_the_reasons_that_only_the_coordinator_knows(
    found: dict[str, Any], warning: WarningKind | None, reason: str | None
) -> None:
    progress = Progress()
    coordinator = Coordinator(
        context_with(
            run=SimpleNamespace(record=run_record()),
            source_facts=SimpleNamespace(reports_ddl=True),
            registry=(),
            spool=SimpleNamespace(end=None),
            partitions=SimpleNamespace(copied=lambda instance: {}),
            progress=progress,
        ),
        StopToken(),
    )
    if warning is not None:
        progress.warn(warning, "")
    now = {"tried": True, "resharded": set(), "unchanged": True, "listing": None, **found}
    coordinator._shard_keys = SimpleNamespace(resharded=now["resharded"])  # type: ignore[assignment]
    coordinator._definitions = SimpleNamespace(  # type: ignore[assignment]
        unchanged=now["unchanged"], listing=now["listing"]
    )
    application: Any = SimpleNamespace(has_tried_withheld=now["tried"])
    texts = [*coordinator._hindrances(application)]
    assert len(texts) == (0 if reason is None else 1)
    assert all(reason in each for each in texts if reason)
