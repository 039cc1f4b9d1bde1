"""The answer of `POST /api/v1/repair` with `dryRun`. Pure."""

from __future__ import annotations

from typing import Any

from syncsvc.mismatches import RepairPlan


def repair_report(plan: RepairPlan) -> dict[str, Any]:
    """Return the answer without `success`: the numbers of differences, and the first ones with their repair."""
    return {
        "documents": plan.documents,
        "definitions": plan.definitions,
        "repairs": [
            {"difference": str(mismatch), "action": action.value} for mismatch, action in plan.steps
        ],
    }
