"""Kills, suspends or disconnects the active one of two daemons with `--standby`; the standby must take over.

No takeover may happen if both daemons are disconnected, or if only single renewals of the lease are lost.

The tests print how long each takeover lasts, from the moment when the active daemon is known to be lost.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.faults.proxied import Proxied
from tests.integration import test_combined_options as combined
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.duo import Duo, role_of, running_duo
from tests.support.pair import SHARDED, Pair, across
from tests.support.proxy import Rule, Way
from tests.support.selection import full
from tests.support.waiting import wait_for

Kill = tuple[Point, str]
START: list[Kill] = [(Point.BATCH_WRITTEN, ""), (Point.EVENTS_APPLIED, "")]
COMMIT: list[Kill] = [(Point.STEP_DONE, "destination unblocked")]
REVERSE: list[Kill] = [(Point.COLLECTION_WEAKENED, "d.c")]
START_FULL: list[Kill] = [
    (Point.STARTED, ""),
    (Point.LEASE_TAKEN, ""),
    (Point.COLLECTION_CREATED, ""),
    (Point.LISTED, ""),
    (Point.BATCH_WRITTEN, ""),
    (Point.COPY_SAVED, ""),
    (Point.COLLECTION_COPIED, ""),
    (Point.INDEXES_BUILT, ""),
    (Point.EVENTS_APPLIED, ""),
    (Point.DEFINITION_APPLIED, ""),
    (Point.POSITION_SAVED, ""),
]
COMMIT_FULL: list[Kill] = [
    (Point.STEP_DONE, step)
    for step in ("commit saved", "drained", "verified", "destination unblocked", "indexes unique")
]
REVERSE_FULL: list[Kill] = [
    (Point.REVERSING, ""),
    (Point.COLLECTION_WEAKENED, "d.c"),
    (Point.REVERSED, ""),
]
OPTIONS = {
    "buildIndexes": "afterDataCopy",
    "reversible": True,
    "enableUserWriteBlocking": "sourceAndDestination",
}


class _Writes:
    """Makes writes and DDL operations on a cluster, different ones with each call of `make`."""

    def __init__(self) -> None:
        self._number = 0

    def make(self, client: writes.AnyClient) -> None:
        self._number += 1
        d = client.d
        d.c.insert_many({"_id": f"{self._number} {n}"} for n in range(10))
        d.c.update_many({}, {"$set": {"newest": self._number}})
        d.c.delete_one({"_id": f"{self._number} 3"})
        d[f"made {self._number}"].insert_one({"_id": 1})


class _Chain:
    """Kills the active one of two daemons (a `Duo`) again and again, each time at another point of the sync.

    Each time, the standby takes over, and the killed daemon is restarted as the standby.
    """

    def __init__(self, duo: Duo, client: writes.AnyClient) -> None:
        self._duo = duo
        self._client = client
        self._writes = _Writes()

    def kill(self, kills: list[Kill], command: str, body: dict[str, Any]) -> Daemon:
        """Send a command to the active daemon, and wait until all kills and takeovers have happened.

        `kills` contains the points at which the active daemons are killed, in order; `body` is the body of the command.
        Return the daemon that is active at the end.
        """
        duo = self._duo
        duo.active.kill_at(*kills[0])
        self._send(command, body)
        for kill, following in zip(kills, [*kills[1:], None], strict=True):
            if following is not None:
                duo.standby.kill_at(*following)
            duo.active.wait_until_killed()
            duo.await_takeover(" ".join(str(getattr(each, "value", each)) for each in kill))
            if command == "start":
                self._writes.make(self._client)
            duo.standby.run(ready=False)
        return duo.active

    def _send(self, command: str, body: dict[str, Any]) -> None:
        active = self._duo.active
        if command == "commit":
            active.wait_until_committable()
            wait_for(lambda: active.exit_status is not None or _sent(active, command), command)
        else:
            active.post_unanswered(command, body)


def _sent(daemon: Daemon, command: str) -> bool:
    daemon.post_unanswered(command, {})
    return daemon.exit_status is not None or daemon.progress()["state"] != "RUNNING"


@pytest.mark.slow
@pytest.mark.parametrize(
    "phases",
    [(START, COMMIT, REVERSE), full((START_FULL, COMMIT_FULL, REVERSE_FULL))],
    ids=["one in each phase", "many in each phase"],
)
def test_a_takeover_in_every_phase(
    pair: Pair, tmp_path: Path, phases: tuple[list[Kill], ...]
) -> None:
    start, commit, reverse = phases
    source, destination = pair.source.client, pair.destination.client
    writes.indexes(source)
    writes.fill(source)
    with running_duo(pair, tmp_path) as duo:
        for each in (duo.active, duo.standby):
            each.save_every_page()
        duo.active.kill()
        duo.await_takeover("SIGKILL before the start")
        duo.standby.run()
        body = duo.active.start_body(**OPTIONS)
        chain = _Chain(duo, source)
        chain.kill(start, "start", body)
        # The commit is requested once: the successors complete the commit without another request.
        chain.kill(commit, "commit", {}).wait_for_state("COMMITTED")
        pair.assert_equal()
        destination.d.c.insert_one({"_id": "written after the commit"})
        chain.kill(reverse, "reverse", {}).wait_for_state("RUNNING")
        destination.d.c.insert_one({"_id": "written after the reverse"})
        duo.active.commit()
        pair.assert_equal()
        assert source.d.c.count_documents({"_id": {"$regex": "^written"}}) == 2
        print(f"{len(duo.durations)} takeovers, the longest of {max(duo.durations):.1f} s")


@pytest.mark.full
def test_takeovers_with_new_names_and_selected_documents(pair: Pair, tmp_path: Path) -> None:
    """Kill the active daemon during the copy, and its successor after a DDL event: the other daemon must take over."""
    combined.fill(pair.source.client)
    with running_duo(pair, tmp_path) as duo:
        duo.active.kill_at(Point.BATCH_WRITTEN)
        duo.standby.kill_at(Point.DEFINITION_APPLIED)
        options = {**combined.OPTIONS, "preExistingDestinationData": False}
        duo.active.post_unanswered("start", duo.active.start_body(**options))
        duo.active.wait_until_killed()
        combined.change(pair.source.client)
        duo.await_takeover("a kill during the copy")
        duo.standby.run(ready=False)
        duo.active.wait_until_killed()
        duo.await_takeover("a kill after a DDL event")
        duo.active.commit()
    combined.assert_exact(pair, set())


@pytest.mark.full
def test_a_new_active_daemon_knows_the_current_primary(pair: Pair, tmp_path: Path) -> None:
    """Change the source's primary while a standby waits, then kill the active daemon.

    The standby must take over and show the new primary.
    """
    client = pair.source.client
    client.d.c.insert_one({"_id": 1})
    with running_duo(pair, tmp_path) as duo:
        duo.active.start()
        duo.active.wait_until_committable()
        former = client.primary
        client.admin.command("replSetStepDown", 30)
        wait_for(lambda: client.primary not in (None, former), "another primary")
        duo.active.kill()
        duo.await_takeover("SIGKILL")
        shown = duo.active.wait_until_committable()["directionMapping"]
        assert client.primary is not None
        assert shown["Source"] == "cluster0: {}:{}".format(*client.primary)
        duo.active.commit()
        pair.assert_equal()


@pytest.fixture
def remote(proxied: Proxied) -> Pair:
    """Empty the two clusters behind proxies, insert documents into the source, and return the clusters."""
    proxied.pair.empty()
    proxied.pair.source.client.d.c.insert_many({"_id": n, "v": 0} for n in range(300))
    return proxied.pair


def _applied(pair: Pair, name: str) -> None:
    """Insert a document with this `_id` into the source, and wait until the destination contains it."""
    pair.source.client.d.marks.insert_one({"_id": name})
    found = pair.destination.client.d.marks.find_one
    wait_for(lambda: found({"_id": name}), f"{name} is applied")


@pytest.mark.slow
def test_a_suspended_daemon_writes_nothing_when_it_wakes_up(
    proxied: Proxied, remote: Pair, tmp_path: Path
) -> None:
    c = remote.source.client.d.c
    with running_duo(remote, tmp_path) as duo:
        former = duo.active
        duo.active.start()
        duo.active.wait_until_committable()
        with proxied.network.held_of(former.pid, Way.TO_SERVER) as held:
            c.update_many({}, {"$set": {"v": 1}})
            c.insert_many({"_id": f"late {n}"} for n in range(50))
            # Requests for the changed documents, and renewals, are on their way.
            wait_for(lambda: held.hits > 3, "requests are held")
            os.kill(former.pid, signal.SIGSTOP)
            duo.await_takeover("SIGSTOP")
            c.update_many({}, {"$set": {"v": 2}})
            c.delete_many({"_id": {"$regex": "late"}})
            _applied(remote, "the newer changes")
        # Now the held requests arrive, and the process continues its work.
        os.kill(former.pid, signal.SIGCONT)
        wait_for(lambda: role_of(former) == "standby", "the former active daemon is a standby")
        assert former.exit_status is None
        assert role_of(duo.active) == "active"
        assert remote.destination.client.d.c.count_documents({"v": {"$ne": 2}}) == 0
        since = duo.active.progress()["lease"]["since"]
        duo.active.commit()
        remote.assert_equal()
        assert duo.active.progress()["lease"]["since"] == since
        assert duo.active.terminate() == 0
        duo.await_takeover("SIGTERM")
        assert duo.active.progress()["state"] == "COMMITTED"


@pytest.mark.full
@pytest.mark.slow
def test_a_host_that_is_cut_off(proxied: Proxied, remote: Pair, tmp_path: Path) -> None:
    # After an outage, the standby waits for 30 seconds, so that the active daemon is first even on a busy machine.
    with running_duo(remote, tmp_path, leases=(6, 30)) as duo:
        former = duo.active
        former.start()
        former.wait_until_committable()
        since = former.progress()["lease"]["since"]
        # While neither daemon can reach the destination, or it fails over, no takeover happens.
        with proxied.network.held():
            wait_for(lambda: _health(former) == _health(duo.standby) == 503, "both are cut off")
        wait_for(lambda: _health(former) == 200, "the destination answers")
        _applied(remote, "a change after the outage")
        members = proxied.destination
        members.restart_member(members.kill_primary())
        _applied(remote, "a change after the failover")
        assert former.progress()["lease"]["since"] == since
        with proxied.network.held_of(former.pid):
            remote.source.client.d.c.update_many({}, {"$set": {"v": 1}})
            duo.await_takeover("a cut of the network")
            _applied(remote, "a change during the cut")
            wait_for(lambda: _health(former) == 503, "the former active daemon is not ready")
            assert _health(duo.active) == 200
            duo.active.ask_for_commit()
            duo.active.wait_for_state("COMMITTED")
            remote.assert_equal()
        wait_for(lambda: role_of(former) == "standby", "the former active daemon is a standby")
        wait_for(lambda: _health(former) == 200, "the former active daemon is ready")
        remote.assert_equal()


def _health(daemon: Daemon) -> int:
    return daemon.get("/readyz").status_code


@pytest.mark.full
@pytest.mark.slow
def test_an_active_daemon_that_loses_every_other_renewal(
    proxied: Proxied, remote: Pair, tmp_path: Path
) -> None:
    """Drop every second renewal of the lease on a link with latency: the daemon must stay active.

    The daemon notices the lost request only after a timeout, and needs a new connection for the next renewal.
    """
    with running_duo(remote, tmp_path) as duo:
        duo.active.start()
        duo.active.wait_until_committable()
        since = duo.active.progress()["lease"]["since"]
        renewal = frozenset({"findAndModify"})
        lost = Rule(
            pid=duo.active.pid,
            ways=frozenset({Way.TO_SERVER}),
            commands=renewal,
            lost=True,
            most=0,
        )
        with proxied.network.obeying(lost), proxied.network.slow(0.15):
            for number in range(1, 5):
                lost.most = number
                wait_for(lambda number=number: lost.hits == number, "a renewal is lost")
                expires = duo.active.progress()["lease"]["expires"]
                wait_for(
                    lambda expires=expires: duo.active.progress()["lease"]["expires"] > expires,
                    "the lease is renewed",
                )
                assert duo.active.progress()["lease"]["since"] == since
        assert role_of(duo.active) == "active"
        duo.active.commit()
        remote.assert_equal()


@pytest.mark.full
@pytest.mark.slow
@across(SHARDED)
def test_each_of_several_instances_has_a_standby(pair: Pair, tmp_path: Path) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    with ExitStack() as stack:
        shards = pair.source.client.config.shards.find(sort=[("_id", 1)])
        names = [str(each["_id"]) for each in shards]
        duos = [
            stack.enter_context(running_duo(pair, tmp_path / name, "--id", name)) for name in names
        ]
        for each, point in zip(duos, (Point.LISTED, Point.POSITION_SAVED), strict=True):
            each.active.kill_at(point)
        body = duos[0].active.start_body()
        for each in duos:
            each.active.post_unanswered("start", body)
        for each, name in zip(duos, names, strict=True):
            each.active.wait_until_killed()
            each.await_takeover(f"SIGKILL of {name}")
            each.standby.run(ready=False)
            pair.source.client.d.c.insert_many({"_id": f"{name} {n}"} for n in range(50))
        for each in duos:
            each.active.ask_for_commit()
        duos[0].active.kill()
        duos[0].await_takeover("SIGKILL of the coordinator that commits")
        for each in duos:
            each.active.wait_for_state("COMMITTED")
        pair.assert_equal()
