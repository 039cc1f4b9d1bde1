"""Tests how the end of a commit makes prepared indexes unique, for which the server scans each index."""

from __future__ import annotations

import pytest

from tests.support import writes
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import holding, running, running_for
from tests.support.pair import Pair
from tests.support.waiting import wait_for

SCANNED = "hangAfterCollModIndexUniqueFullIndexScan"
UNLOCKED = "hangAfterCollModIndexUniqueReleaseIXLock"


@pytest.mark.full
@pytest.mark.three_members
@prepared(Daemon.warn_soon, Daemon.give_up_soon)
def test_a_conversion_outlasts_the_socket_timeout(pair: Pair, daemon: Daemon) -> None:
    """Hold the scan of an index for longer than a call waits: the daemon must not send the command again."""
    destination = pair.destination.client
    sync_unique_index(pair, daemon)
    with holding(destination, SCANNED):
        daemon.ask_for_commit()
        wait_for(lambda: running_for(destination, 12.0, "collMod"), "the call has timed out")
        daemon.wait_for_warning("No answer yet to collMod of d.c", "making an index unique")
        assert len(running(destination, "collMod")) == 1
        assert not daemon.warnings("A call to a cluster fails")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


def test_users_modify_an_index_while_it_is_converted(pair: Pair, daemon: Daemon) -> None:
    """Hide and unhide an index after its scan: the server refuses the conversion, and the daemon must repeat it."""
    destination = pair.destination.client
    sync_unique_index(pair, daemon)
    with holding(destination, UNLOCKED):
        daemon.ask_for_commit()
        wait_for(lambda: is_converting(destination), "the index is converted")
        for hidden in (True, False):
            destination.d.command({"collMod": "c", "index": {"name": "n_1", "hidden": hidden}})
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


def sync_unique_index(pair: Pair, daemon: Daemon) -> None:
    """Run a sync of a collection with a unique index until a commit is possible."""
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", unique=True)
    daemon.start()
    daemon.wait_until_committable()


def is_converting(client: writes.AnyClient) -> bool:
    return any("unique" in each["command"]["index"] for each in running(client, "collMod"))
