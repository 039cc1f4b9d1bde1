"""The answer to `POST /api/v1/repair` with `dryRun`."""

from __future__ import annotations

from typing import Any

from syncsvc.saved.mismatches import RepairPlan


def repair_report(plan: RepairPlan) -> dict[str, Any]:
    """Return the fields of the answer to a dry run, except `success`.

    The fields hold the numbers of differences, and the first differences with their repairs.
    """
    return {
        "documents": plan.documents,
        "definitions": plan.definitions,
        "repairs": [
            {"difference": str(mismatch), "action": action.value} for mismatch, action in plan.steps
        ],
    }
