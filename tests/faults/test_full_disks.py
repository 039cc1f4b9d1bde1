"""Tests that a sync survives a full disk, which is enlarged later: under the destination, or under the daemon's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncsvc.sandbox import ReplicaSet
from tests.support.disks import small_disk
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for
from tests.support.writes import fill, single_document_writes

_MEGABYTES = 500


@pytest.mark.full
def test_a_full_disk_of_the_destination_is_enlarged(tmp_path: Path, pair: Pair) -> None:
    source = pair.source
    source.client.d.big.insert_many({"_id": n, "pad": os.urandom(100_000)} for n in range(600))
    with small_disk(tmp_path / "disk", _MEGABYTES) as disk:
        with ReplicaSet(name="small", folder=disk.folder) as small, small.client() as client:
            disk.fill_up(leave=20 << 20)
            full = Pair(source, Side(small.uri, client))
            (tmp_path / "daemon").mkdir()
            with full.daemon(tmp_path / "daemon").running() as daemon:
                daemon.start()
                wait_for(lambda: small.members[0].pid is None, "the server ends on its full disk")
                single_document_writes(source.client)
                assert daemon.progress()["state"] == "RUNNING"
                disk.enlarge(4 * _MEGABYTES)
                small.restart_member(0)
                daemon.commit()
                full.assert_equal()


@pytest.mark.full
def test_a_full_disk_under_the_log(tmp_path: Path, pair: Pair) -> None:
    fill(pair.source.client)
    with small_disk(tmp_path / "log", 1) as disk:
        with pair.daemon(tmp_path).running() as daemon:
            disk.fill_up()
            daemon.start()
            daemon.wait_until_committable()
            single_document_writes(pair.source.client)
            assert disk.free == 0
            daemon.pause()
            daemon.resume()
            disk.enlarge(50)
            said = len(daemon.log)
            daemon.commit()
            pair.assert_equal()
            assert len(daemon.log) > said
            assert daemon.terminate() == 0
