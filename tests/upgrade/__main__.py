"""Saves the state of a sync whose daemon is killed in a phase: `python -m tests.upgrade PHASE FILE`.

The phases are `copy`, `events` (change event application) and `commit`. For each format of the saved state, run this
once per phase with the last version that writes the format. `tests/integration/test_upgrade.py` continues these
syncs with the current version.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.daemon import Daemon
from tests.support.pair import Pair, started_pair
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient
from tests.upgrade.saved_state import State, contents, dump, identities

# Commands, each with its database.
Writes = list[tuple[str, dict[str, Any]]]

_DOCUMENTS = 40


class Point(Enum):
    """The points in the daemon's code at which this program kills the daemon. The values are the names of the points.

    The enum of syncsvc is not imported, because its module differs between the versions that run this program.
    """

    COLLECTION_COPIED = "collection copied"
    EVENTS_APPLIED = "events applied"
    STEP_DONE = "step done"


def main(phase: str, path: Path) -> None:
    with started_pair() as pair, TemporaryDirectory() as folder:
        _fill(pair.source.client)
        daemon = pair.daemon(Path(folder))
        try:
            dump(_PHASES[phase](pair, daemon), path)
        finally:
            daemon.close()


def _fill(client: AnyClient) -> None:
    d = client.d
    d.create_collection("c", validator={"n": {"$type": "int"}}, validationAction="warn")
    d.c.create_index("n", unique=True)
    d.c.create_index([("at", -1)], expireAfterSeconds=10**9, name="expiry")
    d.c.insert_many({"_id": n, "n": n, "pad": "p" * 20} for n in range(_DOCUMENTS))
    d.create_collection("capped", capped=True, size=100_000)
    d.capped.insert_many({"_id": n} for n in range(5))
    d.create_collection("view", viewOn="c", pipeline=[{"$match": {"n": {"$gt": 3}}}])


def _killed_in_copy(pair: Pair, daemon: Daemon) -> State:
    """Kill the daemon after it has copied one of the collections.

    Return the state of both clusters, with writes that follow the saved position. This function does not make these
    writes: `restore` makes them.
    """
    before = contents(pair.source.client)
    daemon.kill_at(Point.COLLECTION_COPIED)
    daemon.run()
    _start(daemon)
    daemon.wait_until_killed()
    return _state(pair, before, _writes())


def _killed_in_events(pair: Pair, daemon: Daemon) -> State:
    """Kill the daemon after it has applied some writes, but before it saves the new position.

    Return the state of both clusters. The `source` of the state does not contain these writes.
    """
    source, destination = pair.source.client, pair.destination.client
    daemon.run()
    _start(daemon)
    daemon.wait_until_committable()
    # This change makes the verification recheck the document.
    source.d.c.update_one({"_id": 0}, {"$set": {"pad": "changed"}})
    wait_for(lambda: destination.d.c.find_one({"_id": 0, "pad": "changed"}), "a change is applied")
    # The daemon saves its position when it stops. All writes to the source so far come before that position.
    assert daemon.terminate() == 0
    before = contents(source)
    daemon.kill_at(Point.EVENTS_APPLIED)
    daemon.run()
    _apply(source, _writes())
    daemon.wait_until_killed()
    return _state(pair, before, _writes())


def _killed_in_commit(pair: Pair, daemon: Daemon) -> State:
    """Kill the daemon after the first step of the commit, and return the state of both clusters."""
    source = pair.source.client
    daemon.run()
    _start(daemon)
    _apply(source, _writes())
    daemon.wait_until_committable()
    daemon.kill_at(Point.STEP_DONE)
    daemon.post_unanswered("commit", {})
    daemon.wait_until_killed()
    return _state(pair, contents(source), [])


def _start(daemon: Daemon) -> None:
    daemon.start(reversible=False, excludeNamespaces=[{"database": "no"}])


def _state(pair: Pair, before: list[dict[str, Any]], writes: Writes) -> State:
    return {
        "identities": identities(pair),
        "source": before,
        "writes": writes,
        "destination": contents(pair.destination.client),
    }


def _apply(client: AnyClient, writes: Writes) -> None:
    for database, command in writes:
        client[database].command(command)


def _writes() -> Writes:
    added = [{"_id": f"new {n}", "n": 1000 + n} for n in range(5)]
    updates = [{"q": {"_id": n}, "u": {"$set": {"n": -n}}} for n in range(1, 9)]
    replaced = [{"q": {"_id": n}, "u": {"n": 500 + n}} for n in range(10, 15)]
    deletes = [{"q": {"_id": n}, "limit": 1} for n in range(20, 25)]
    index = {"key": {"pad": 1}, "name": "later"}
    return [
        ("d", {"insert": "c", "documents": added}),
        ("d", {"update": "c", "updates": [*updates, *replaced]}),
        ("d", {"delete": "c", "deletes": deletes}),
        ("d", {"createIndexes": "c", "indexes": [index]}),
        ("d", {"insert": "another", "documents": [{"_id": 1}]}),
    ]


_PHASES: dict[str, Callable[[Pair, Daemon], State]] = {
    "copy": _killed_in_copy,
    "events": _killed_in_events,
    "commit": _killed_in_commit,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
