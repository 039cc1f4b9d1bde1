"""Tests the upgrade of the product during a sync.

A sync of an earlier version must continue and commit. A sync of a newer version must be refused and left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.run_documents import FORMATS
from tests import upgrade
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import wait_for
from tests.upgrade.saved_state import State, contents, load, restore

FOLDER = Path(upgrade.__file__).parent
# The saved states: for each older format that can be read, syncs that were killed in several phases. The last version
# that wrote the format has saved them.
STATES = sorted(FOLDER.glob("format-*.json"))
# The format in which a sync without newer start options is saved, so earlier versions may continue it. The later
# formats only mark syncs with start options that earlier versions would ignore.
PLAIN_FORMAT = 7
# The phase in which the current version continues each sync, by the phase in which the sync was killed.
PHASES = {
    "copy": "collection copy",
    "events": "change event application",
    "commit": "change event application",
}


@pytest.fixture
def idle(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Return a daemon that is not started."""
    process = pair.daemon(tmp_path)
    yield process
    process.close()


def saved(state: State, name: str) -> Any:
    """Return the only document that a saved state has for the metadata collection `name`."""
    ((document,),) = (
        each["documents"]
        for each in state["destination"]
        if (each["database"], each["name"]) == (METADATA_DATABASE, name)
    )
    return document


def test_each_format_has_a_fixture_of_each_phase() -> None:
    earlier = range(FORMATS.oldest, PLAIN_FORMAT + 1)
    assert {each.stem for each in STATES} == {
        f"format-{n}-{phase}" for n in earlier for phase in PHASES
    }
    assert {saved(load(each), "runs")["format"] for each in STATES} == {*earlier}


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("path", STATES, ids=lambda path: path.stem)
def test_a_sync_of_an_earlier_version_is_committed(pair: Pair, idle: Daemon, path: Path) -> None:
    state = load(path)
    # Simulate a later version of the same format that has more options.
    saved(state, "runs")["options"]["unknown"] = {"a": 1}
    restore(state, pair)
    assert pair.differences()
    phase = path.stem.rpartition("-")[2]
    idle.run()
    run = pair.destination.client[METADATA_DATABASE].runs.find_one()
    assert run is not None and run["format"] == PLAIN_FORMAT
    # Search the log, because the sync may have left this phase already.
    begun = wait_for(lambda: re.search("Starting ([a-z ]+) phase", idle.log), "a phase begins")
    assert begun[1] == PHASES[phase]
    if phase == "commit":
        idle.wait_for_state("COMMITTED")
    else:
        writes.many_collections(pair.source.client)
        pair.source.client.d.c.delete_one({"_id": 30})
        idle.commit()
    pair.assert_equal()


@pytest.mark.parametrize("path", STATES[-1:], ids=lambda path: path.stem)
def test_a_sync_of_a_newer_version_is_refused_and_unchanged(
    pair: Pair, idle: Daemon, path: Path
) -> None:
    state = load(path)
    saved(state, "runs")["format"] = FORMATS.current + 1
    restore(state, pair)
    before = contents(pair.destination.client)
    idle.launch()
    assert idle.wait_until_ended() != 0
    assert "IncompatibleMetadata" in idle.output
    assert "of a newer version" in idle.output
    assert contents(pair.destination.client) == before
