"""Builds the answer to a dry run of `POST /api/v1/reset`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syncsvc.saved.created_collections import Contents, Found
from syncsvc.saved.run import RunRecord
from verifier.cluster.specification import Kind


def reset_report(record: RunRecord, found: Contents) -> dict[str, Any]:
    """Return the fields of the answer to a dry run of a reset, except `success`.

    `record` is the coordinator's run record, and `found` are the contents of its destination. The fields name the
    collections, views, users and roles that a reset would drop, the collections and views that a reset would keep, the
    clusters that it would unblock, and the clusters whose balancer it would start again.
    """
    views = [each for each in found.created if each.kind is Kind.VIEW]
    collections = [each for each in found.created if each.kind is not Kind.VIEW]
    return {
        "collections": _names(collections),
        "views": _names(views),
        "kept": _names(found.others),
        "usersAndRoles": list(found.principals),
        "unblocked": [*filter(record.has_blocked, record.found_blocked)],
        "balancersStarted": _true(record.found_balancing),
    }


def _names(found: Iterable[Found]) -> list[str]:
    return [str(each.namespace) for each in found]


def _true(flags: Mapping[str, bool]) -> list[str]:
    return [name for name, flag in flags.items() if flag]
