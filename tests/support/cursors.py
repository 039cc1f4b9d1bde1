"""Counts the cursors that are open on servers."""

from __future__ import annotations

from collections.abc import Iterable

from syncsvc.sandbox import ReplicaSet


def open_cursors(replica_sets: Iterable[ReplicaSet]) -> int:
    """Return the number of open cursors on all members, but for those of the servers' own connections."""
    total = 0
    for each in replica_sets:
        with each.client() as client:
            total += client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    return total
