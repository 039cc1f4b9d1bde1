"""Tests what the coordinator says about a commit that is not possible yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.engine.coordinator import Coordinator
from syncsvc.engine.events.unreported import Listing
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.saved.run import RunRecord
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import START, run_record
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import StopToken

LISTING = Listing(Timestamp(1, 1), {Namespace("d", "c"): bytes(16)})
WITHHELD, CHANGED = WarningKind.INDEXES_WITHHELD, WarningKind.DEFINITIONS_CHANGED


def _coordinator(progress: Progress, record: RunRecord) -> Coordinator:
    context = context_with(
        run=SimpleNamespace(record=record),
        source_facts=SimpleNamespace(reports_ddl=True),
        registry=(),
        spool=SimpleNamespace(end=None),
        partitions=SimpleNamespace(copied=lambda instance: {}),
        instances=SimpleNamespace(all_held=lambda holds: True),
        progress=progress,
    )
    return Coordinator(context, StopToken())


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
        ({"adopts": True}, None, "A collection that joined the sync"),
        ({"adopts": True, "resharded": {bytes(16)}}, None, "Collections that were resharded"),
        ({"adopts": True, "listing": LISTING}, None, "not applied to the destination yet: d.c."),
    ],
)
def test_the_reasons_that_only_the_coordinator_knows(
    found: dict[str, Any], warning: WarningKind | None, reason: str | None
) -> None:
    progress = Progress()
    coordinator = _coordinator(progress, run_record())
    progress.set(adopts_collection=found.get("adopts", False))
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


@pytest.mark.parametrize("adopts", [False, True])
def test_a_commit_is_not_possible_while_a_new_collection_is_copied(adopts: bool) -> None:
    progress = Progress()
    coordinator = _coordinator(progress, run_record(copy_end=Timestamp(1, 1)))
    progress.set_lag(0)
    progress.set(adopts_collection=adopts)
    application: Any = SimpleNamespace(has_tried_withheld=True, passed=START)
    assert coordinator._have_caught_up(application) is not adopts
