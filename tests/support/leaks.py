"""Checks for leaks: threads and memory of a process, cursors and sessions on the servers."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

from tests.support.waiting import DeadlinePassed, wait_for

AnyClient = MongoClient[Any]

# This is more than a sync of a few hundred documents needs, and less than a leak of documents or threads would take.
_MOST_MEMORY_MB = 400
# The driver pools sessions: it creates one for each concurrent call, and one after each lost connection. A leak would
# create one for each call.
_FEW_SESSIONS = 150
_CALLS_PER_SESSION = 5


@dataclass(frozen=True)
class Holdings:
    threads: int
    cursors: frozenset[str]
    time: datetime


def holdings(pid: int, *clients: AnyClient) -> Holdings:
    return Holdings(_threads(pid), idle_cursors(*clients), datetime.now(UTC))


def assert_no_leaks(pid: int, before: Holdings, *clients: AnyClient, lost: int = 0) -> None:
    """Wait until the process has no more threads, and the clusters no more cursors, than in `before`.

    Up to `lost` cursors may be left, because the reply with the ID of a cursor can be lost. Also fail if too many
    sessions of a cluster were used since `before`, or if the process uses too much memory. Call this after a commit.
    """
    wait_for(lambda: _threads(pid) <= before.threads, f"no more than {before.threads} threads", 30)
    assert_no_cursors_since(before.cursors, *clients, lost=lost)
    for client in clients:
        _assert_sessions_are_reused(client, before.time)
    assert _memory_mb(pid) < _MOST_MEMORY_MB


def assert_no_cursors_since(before: frozenset[str], *clients: AnyClient, lost: int = 0) -> None:
    """Wait until at most `lost` cursors are open except those in `before`; fail if others are open after 30 seconds."""

    def left() -> frozenset[str]:
        return idle_cursors(*clients) - before

    with suppress(DeadlinePassed):
        wait_for(lambda: len(left()) <= lost, f"no more than {lost} open cursors", 30)
        return
    raise AssertionError("\n".join(left()))


def close_cursors(*clients: AnyClient) -> None:
    """Close all cursors on these clusters, as servers do after ten minutes. Retry while a server ends connections."""

    def close(client: AnyClient) -> bool:
        with suppress(AutoReconnect):
            client.admin.command({"killAllSessions": []})
            return True
        return False

    for client in clients:
        wait_for(partial(close, client), "a server closes all cursors")


def idle_cursors(*clients: AnyClient) -> frozenset[str]:
    """Return a description of each idle cursor on these clusters, except cursors of replication.

    The description contains the ID, the namespace, the creation time and the command of the cursor.
    """
    operations = [{"$currentOp": {"idleCursors": True, "allUsers": True}}]
    found = [each for client in clients for each in client.admin.aggregate(operations)]
    ours = (each for each in found if each["type"] == "idleCursor" and _is_ours(each))
    return frozenset(map(_opened_by, ours))


def _opened_by(operation: dict[str, Any]) -> str:
    cursor = operation["cursor"]
    opened = str(cursor["originatingCommand"])[:300]
    return f"{cursor['cursorId']} on {operation['ns']}, {cursor['createdDate']}: {opened}"


def _is_ours(operation: dict[str, Any]) -> bool:
    # A secondary that fetches the oplog specifies the term of its primary.
    return "term" not in operation["cursor"]["originatingCommand"]


def _assert_sessions_are_reused(client: AnyClient, since: datetime) -> None:
    sessions, calls = _sessions(client, since), _calls(client)
    assert sessions <= max(
        _FEW_SESSIONS, calls / _CALLS_PER_SESSION
    ), f"{sessions} sessions after {calls} calls"


def _sessions(client: AnyClient, since: datetime) -> int:
    # The servers keep the sessions of earlier daemons for half an hour.
    used = {"$match": {"lastUse": {"$gte": since}}}
    counted: list[dict[str, Any]] = [
        {"$listLocalSessions": {"allUsers": True}},
        used,
        {"$count": "sessions"},
    ]
    return sum(int(each["sessions"]) for each in client.admin.aggregate(counted))


def _calls(client: AnyClient) -> int:
    counters = client.admin.command("serverStatus")["opcounters"]
    return sum(each for each in counters.values() if isinstance(each, int))


def _threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def _memory_mb(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024
