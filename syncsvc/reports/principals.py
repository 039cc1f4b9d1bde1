"""The users and roles of a sync, as the API shows them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from syncsvc.principals.comparison import Comparison, PrincipalCounts
from syncsvc.saved.run import RunRecord


def principals_report(found: Comparison) -> dict[str, Any]:
    """Return the fields of the answer to `GET /api/v1/users`, except `success`."""
    return {
        "usersAndRoles": [
            {
                "type": each.identity.kind,
                "database": each.identity.database,
                "name": each.identity.name,
                "result": each.outcome.value,
                "detail": each.detail,
            }
            for each in found.findings
        ]
    }


def copied_report(record: RunRecord) -> dict[str, dict[str, Any]]:
    """Return a dict with the field `usersAndRoles` of the progress; empty if the sync copies no users and roles."""
    if record.options.users_and_roles is None:
        return {}
    counts = record.principals or PrincipalCounts()
    shown = {name: count for name, count in asdict(counts).items() if name != "conflicts"}
    return {"usersAndRoles": {"copied": record.principals is not None, **shown}}
