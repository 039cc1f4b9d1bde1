"""Helpers for user write blocking: block a cluster, and check whether it is blocked or refuses a user's write."""

from __future__ import annotations

from pymongo.errors import OperationFailure

from syncsvc.sandbox.replica_set import Client
from tests.support.pair import Pair, Side

USER_WRITES_BLOCKED = 371


def is_blocked(side: Side) -> bool:
    found = {_mode(side.client)} if not side.shards else set()
    for shard in side.shards:
        with shard.client() as client:
            found.add(_mode(client))
    (mode,) = found
    return mode == 2


def _mode(client: Client) -> int:
    return int(client.admin.command("serverStatus")["repl"]["userWriteBlockMode"])


def blocked(pair: Pair) -> tuple[bool, bool]:
    """Return whether user writes are blocked on the source, and whether they are blocked on the destination."""
    return is_blocked(pair.source), is_blocked(pair.destination)


def block(side: Side, refuse: bool = True) -> None:
    """Block user writes on a cluster as an administrator would; unblock them if `refuse` is false."""
    side.client.admin.command({"setUserWriteBlockMode": 1, "global": refuse})


def code_of_write(side: Side) -> int | None:
    """Insert a document as a user, and return the error code of the server; None if the insert succeeds."""
    try:
        side.client.d.of_users.insert_one({"by": "user"})
    except OperationFailure as error:
        return error.code
    return None
