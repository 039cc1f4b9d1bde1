"""Reads the event spool of a daemon, and makes the source's oplog drop events that are already spooled."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from bson.timestamp import Timestamp

from syncsvc.metadata import METADATA_DATABASE
from tests.support.daemon import Daemon
from tests.support.oplogs import roll_over
from tests.support.pair import Pair
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

SPOOL = "eventSpool"


def headers(client: AnyClient) -> list[dict[str, Any]]:
    """Return the headers of all rows in the event spool, in order."""
    return list(client[METADATA_DATABASE][SPOOL].find({"_id.part": 0}, sort=[("_id", 1)]))


def rows(client: AnyClient) -> int:
    """Return the number of documents in the event spool, including those of earlier runs and reversed directions."""
    return client[METADATA_DATABASE][SPOOL].count_documents({})


def now(client: AnyClient) -> Timestamp:
    time: Timestamp = client.admin.command("ping")["operationTime"]
    return time


def change(client: AnyClient, name: str, query: Any, update: dict[str, Any]) -> None:
    """Update the document that matches `query` in the metadata collection `name`, or insert it.

    This works even while user writes are blocked.
    """
    statement = {"q": query, "u": update, "upsert": True}
    command = {"update": name, "updates": [statement], "mayBypassWriteBlocking": True}
    assert client[METADATA_DATABASE].command(command)["n"] == 1


def leave_row(client: AnyClient, run: dict[str, Any]) -> None:
    """Save a row of the event spool that does not start where the last row ends, as a stopped engine may do late.

    `run` is the saved run record.
    """
    direction = {"run": UUID(run["fence"]).hex, "reversals": run["reversals"]}
    time = Timestamp(2**32 - 1, 1)
    row = {
        "since": time,
        "joint": 0,
        "end": {"token": {"_data": "FF"}, "time": time},
        **dict.fromkeys(("events", "size", "parts", "checksum"), 0),
    }
    identity = {**direction, "isPart": False, "number": 10_000, "part": 0}
    change(client, SPOOL, {"_id": identity}, row)


def wait_until_spooled(source: AnyClient, destination: AnyClient, instances: int = 1) -> None:
    """Wait until all events that the source has now are in the event spool of each instance."""
    time = now(source)

    def is_spooled() -> bool:
        # Without new oplog entries, the position of the stream may not advance.
        source.admin.command({"appendOplogNote": 1, "data": {}})
        ends: dict[str, Timestamp] = {}
        for each in headers(destination):
            ends[each["_id"]["run"]] = each["end"]["time"]
        return len(ends) == instances and all(end > time for end in ends.values())

    wait_for(is_spooled, "all events are spooled")


def provoke(pair: Pair, daemon: Daemon) -> None:
    """Write to the source until the daemon begins to spool events; the oplog still holds far more than these writes."""

    def is_active() -> bool:
        pair.source.client.admin.command({"appendOplogNote": 1, "data": {"note": "n" * 10_000}})
        shown = daemon.progress()
        assert shown["state"] != "FAILED", shown
        return bool(shown.get("eventSpool", {}).get("active"))

    wait_for(is_active, "the daemon spools")


def roll_over_spooled(source: AnyClient, destination: AnyClient) -> None:
    """Make the source's oplog drop all its current entries, after their events are in the event spool."""
    wait_until_spooled(source, destination)
    roll_over(source)
    wait_until_spooled(source, destination)
