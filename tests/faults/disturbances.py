"""Disturbances of replica sets and of daemons, for the stages of a sync.

A shard of a sharded cluster is a replica set, too.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from pymongo import MongoClient

from tests.faults.flight import Disturbance
from tests.support.daemon import Daemon
from tests.support.leaks import close_cursors
from tests.support.members import ThreeMembers

_pause = threading.Event()


def _step_down(members: ThreeMembers) -> None:
    members.step_down()


def kill_primary(members: ThreeMembers) -> None:
    index = members.kill_primary()
    members.primary()
    members.restart_member(index)


def _stop_primary(members: ThreeMembers, seconds: float = 5) -> None:
    with members.stopped(members.primary()):
        _pause.wait(seconds)
    members.primary()


def _no_primary(members: ThreeMembers, seconds: float) -> None:
    with members.without_primary():
        _pause.wait(seconds)


def _no_majority(members: ThreeMembers, seconds: float = 5) -> None:
    with members.without_majority():
        _pause.wait(seconds)


def _roll_back(members: ThreeMembers) -> None:
    """Make the primary of a cluster roll back documents that the test inserts.

    On the destination, the daemon's writes to the same primary are rolled back, too.
    """

    def write(client: Any) -> None:
        documents = [{"_id": f"rolled back {n}"} for n in range(20)]
        database = client[_written(members.name)]
        concern = {"w": 1}
        database.command({"insert": "plain", "documents": documents, "writeConcern": concern})

    former = members.primary()
    members.roll_back(write)
    # The daemon could not close its cursors on this member, which did not answer during the rollback. Close them here,
    # as the server would do after ten minutes.
    with MongoClient[dict[str, Any]](former.address, directConnection=True) as direct:
        close_cursors(direct)


def _written(name: str) -> str:
    """Return the database into which a rollback of the replica set `name` inserts."""
    if name.endswith("-config"):
        # A config server refuses other databases.
        return "config"
    return "d" if name.startswith("source") else "of_the_test"


# The disturbances of a replica set.
OF_SERVERS: dict[str, Callable[[ThreeMembers], None]] = {
    "step-down": _step_down,
    "killed primary": kill_primary,
    "stopped primary": _stop_primary,
    "no majority": _no_majority,
    "rollback": _roll_back,
    "no primary for 5 s": partial(_no_primary, seconds=5),
    "no primary for 15 s": partial(_no_primary, seconds=15),
    "no primary for 60 s": partial(_no_primary, seconds=60),
    "rolling restart": ThreeMembers.restart_all,
}


def _kill_daemon(daemon: Daemon) -> None:
    daemon.kill()
    daemon.run()


def _stop_daemon(daemon: Daemon, seconds: float = 5) -> None:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        _pause.wait(seconds)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


OF_DAEMON = {"killed daemon": _kill_daemon, "stopped daemon": _stop_daemon}

# These disturbances leave open cursors, because the daemon was killed, or did not get the reply with the ID of the
# cursor. The servers close such cursors after ten minutes.
LEAVE_CURSORS = {"killed daemon", "stopped primary"}


def disturbance(name: str, members: ThreeMembers, daemon: Daemon) -> Disturbance:
    if name in OF_DAEMON:
        return Disturbance(name, partial(OF_DAEMON[name], daemon))
    return Disturbance(name, partial(OF_SERVERS[name], members))
