"""Fills the oplog of a source until it rolls over."""

from __future__ import annotations

from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

_NOTE = "n" * 4_000_000


def note(client: AnyClient) -> None:
    """Write an oplog entry of 4 MB, which causes no change event."""
    client.admin.command({"appendOplogNote": 1, "data": {"note": _NOTE}})


def roll_over(client: AnyClient) -> None:
    """Write until the primary's oplog has dropped all its present entries."""
    now = client.admin.command("ping")["operationTime"]

    def is_over() -> bool:
        note(client)
        # A query of the oplog fails if the entry that it is about to return is dropped at that moment.
        status = client.admin.command({"serverStatus": 1, "oplog": True})
        return bool(status["oplog"]["earliestOptime"] > now)

    wait_for(is_over, "the oplog has rolled over")
