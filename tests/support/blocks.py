"""Helpers for user write blocking: as the servers report it, and as a user experiences it."""

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
    """Return whether users are blocked on the source, and on the destination."""
    return is_blocked(pair.source), is_blocked(pair.destination)


def block(side: Side, refuse: bool = True) -> None:
    """Enable user write blocking as an administrator would; disable it if `refuse` is false."""
    side.client.admin.command({"setUserWriteBlockMode": 1, "global": refuse})


def code_of_write(side: Side) -> int | None:
    """Return the error code of a user's write; None if the write succeeds."""
    try:
        side.client.d.of_users.insert_one({"by": "user"})
    except OperationFailure as error:
        return error.code
    return None
