"""Counts the open cursors of servers."""

from __future__ import annotations

from collections.abc import Iterable

from syncsvc.sandbox import ReplicaSet


def open_cursors(replica_sets: Iterable[ReplicaSet]) -> int:
    """Return the sum of the servers' metric `cursor.open.total` over the primaries of these replica sets."""
    total = 0
    for each in replica_sets:
        with each.client() as client:
            total += client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    return total
