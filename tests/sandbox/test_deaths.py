"""Tests what happens if a server that several tests share dies.

No call may hang, the current test must fail, and the next test must get new servers.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from syncsvc.sandbox.replica_set import Client
from tests.support.deaths import MongodDied
from tests.support.pair import Clusters
from tests.support.waiting import wait_for


@pytest.mark.full
def test_a_dead_server_fails_the_test_and_is_replaced() -> None:
    with Clusters() as clusters:
        pair = clusters.pair(members=3)
        collection = pair.destination.client.d.c
        collection.insert_one({"_id": 1})
        died = _kill_a_secondary(pair.destination.client)
        # An index build waits for all voting members.
        with pytest.raises(PyMongoError):
            collection.create_index("a")
        with pytest.raises(MongodDied, match=died):
            wait_for(lambda: False, "never")
        with pytest.raises(MongodDied, match=f"{died} ended by itself with exit code -9"):
            clusters.discard_dead()
        whole = clusters.pair(members=3)
        assert whole.source is pair.source
        whole.destination.client.d.c.create_index("a")
        clusters.discard_dead()


def _kill_a_secondary(client: Client) -> str:
    """Kill a secondary without using the sandbox; return the part of the error message that names it."""
    host, port = wait_for(lambda: min(client.secondaries, default=None), "a secondary")
    with MongoClient[dict[str, Any]](f"mongodb://{host}:{port}/?directConnection=true") as direct:
        os.kill(direct.admin.command("serverStatus")["pid"], signal.SIGKILL)
    return f"port {port}"
