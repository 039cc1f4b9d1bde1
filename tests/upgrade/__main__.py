"""Save the state of a sync that is killed while it applies change events: `python -m tests.upgrade FILE`.

Run this with the last version of each format. Then `test_upgrade` continues the sync with all later versions.
"""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.daemon import Daemon
from tests.support.pair import Pair, started_pair
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient
from tests.upgrade.saved_state import State, contents, dump, identities

_DOCUMENTS = 40


class Point(Enum):
    """Where the daemon is killed. The daemon's own names have moved between versions."""

    EVENTS_APPLIED = "events applied"


def main(path: Path) -> None:
    with started_pair() as pair, TemporaryDirectory() as folder:
        _fill(pair.source.client)
        daemon = pair.daemon(Path(folder))
        try:
            dump(_killed_sync(pair, daemon), path)
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


def _killed_sync(pair: Pair, daemon: Daemon) -> State:
    source, destination = pair.source.client, pair.destination.client
    daemon.run()
    daemon.start(reversible=False, excludeNamespaces=[{"database": "no"}])
    daemon.wait_until_committable()
    # The verification will look at this document again.
    source.d.c.update_one({"_id": 0}, {"$set": {"pad": "changed"}})
    wait_for(lambda: destination.d.c.find_one({"_id": 0, "pad": "changed"}), "a change is applied")
    # It saves its position, which all documents on the source precede.
    assert daemon.terminate() == 0
    before = contents(source)
    daemon.kill_at(Point.EVENTS_APPLIED)
    daemon.run()
    writes = _writes()
    for database, command in writes:
        source[database].command(command)
    daemon.wait_until_killed()
    return {
        "identities": identities(pair),
        "source": before,
        "writes": writes,
        "destination": contents(destination),
    }


def _writes() -> list[tuple[str, dict[str, Any]]]:
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
