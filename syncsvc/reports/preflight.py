"""The answer to `POST /api/v1/preflight`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from syncsvc.preflight.judgement import Judgement
from verifier.runtime.errors import OperationError


def preflight_report(judgement: Judgement) -> dict[str, Any]:
    """Return the fields of the answer to `POST /api/v1/preflight`, except `success`.

    The fields hold the errors with which a start would be refused, the warnings, the missing features of the servers,
    the estimates, and the numbers of users and roles that would be copied. These numbers are left out if no users and
    roles are to be copied, or if the numbers are unknown.
    """
    estimates, principals = judgement.estimates, judgement.principals
    planned = {} if principals is None else {"usersAndRoles": asdict(principals.counts)}
    return {
        "violations": [
            {"error": kind.name, "errorDescription": str(OperationError(kind, text))}
            for kind, text in judgement.violations
        ],
        "warnings": list(judgement.warnings),
        "missingFeatures": [
            {"cluster": cluster, "feature": each.name, "effect": each.effect}
            for cluster, each in judgement.missing
        ],
        "estimates": {
            "namespaces": estimates.namespaces,
            "documents": estimates.documents,
            "bytes": estimates.bytes,
            "indexes": estimates.indexes,
            "diskNeededBytes": estimates.disk_needed,
            "diskFreeBytes": estimates.disk_free,
            "memoryNeededBytes": estimates.memory_needed,
            "memoryAvailableBytes": estimates.memory_available,
            "copySeconds": estimates.copy_seconds,
            "oplogWindowSeconds": estimates.oplog_window_seconds,
        },
        **planned,
    }
