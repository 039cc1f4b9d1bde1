"""Fills the oplog of a source until it has rolled over."""

from __future__ import annotations

from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

_NOTE = "n" * 4_000_000


def note(client: AnyClient) -> None:
    """Write an entry of 4 MB to the oplog, which no change stream shows."""
    client.admin.command({"appendOplogNote": 1, "data": {"note": _NOTE}})


def roll_over(client: AnyClient) -> None:
    """Write until the oplog of the primary holds no entry that it holds now."""
    now = client.admin.command("ping")["operationTime"]

    def is_over() -> bool:
        note(client)
        return bool(client.local["oplog.rs"].find_one({}, {"ts": 1})["ts"] > now)

    wait_for(is_over, "the oplog has rolled over")
