"""Tests calls to a cluster after a daemon with `--standby` has stopped being active: the former term must not end them.

Each period of being active is a term, whose stop token is stopped at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from syncsvc.engine.run.pace import Pace
from syncsvc.figures.progress import Progress
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.options import StartOptions
from syncsvc.running.beginning import Starts
from syncsvc.running.process import ProcessContext
from syncsvc.saved.journal import Sender
from syncsvc.saved.run_documents import saved_instances
from syncsvc.saved.run_store import RunStore
from syncsvc.service import Service
from syncsvc.tuning import LOAD_LEVELS, Tuning
from tests.support.failpoints import failing, times
from tests.support.pair import Pair
from tests.unit.syncsvc.records import run_record
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.runtime.observer import ignore
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup
from verifier.runtime.waits import LongWait

_APPLICATION = "terms"
_BAD_VALUE, _NOT_PRIMARY = 2, 10107


@pytest.fixture
def opened(pair: Pair) -> Iterator[dict[str, Cluster]]:
    with ExitStack() as closing:
        clusters = {}
        for name, side in (("cluster0", pair.source), ("cluster1", pair.destination)):
            clusters[name] = open_cluster(name, side.uri, _APPLICATION)
            closing.callback(clusters[name].client.close)
        yield clusters


def _never(name: str, work: object) -> None:
    """Ignore `work` instead of running it in a thread."""


def _refused(command: str, code: int) -> dict[str, Any]:
    return {"failCommands": [command], "appName": _APPLICATION, "errorCode": code}


def test_the_end_of_a_term_does_not_end_the_reporter(
    pair: Pair, opened: dict[str, Cluster]
) -> None:
    """Save the journal, as the reporter does every few seconds, after a term has ended and while saves fail.

    The reporter is a thread of the process. Without it, the daemon would no longer notice that a cluster answers.
    """
    stop = StopToken()
    service = Service("coordinator", LOAD_LEVELS[1], _never, ignore, stop)
    service.connect(opened)
    options = StartOptions("cluster0", "cluster1", verification=False, skip_disk_space_check=True)
    with suppress(Cancelled), TaskGroup("term", stop) as term:
        service.initialize(None, term)
        service.start(options, Sender("test"))
        service.each_second((LongWait("A wait that the journal must contain", "", 20.0),))
        term.stop.stop("the term has ended")
    with failing(pair.destination.client, _refused("update", _NOT_PRIMARY)):
        service.keep_journal()
        stop.stop("shutdown")
        with pytest.raises(Cancelled):
            service.keep_journal()


@pytest.mark.full
def test_a_failed_start_is_withdrawn_in_a_later_term(
    pair: Pair, opened: dict[str, Cluster]
) -> None:
    """Let a start fail whose record cannot be deleted at once, and delete the record in the next term."""
    metadata = pair.destination.client[METADATA_DATABASE]
    former, later = _process(opened), _process(opened)
    starts = Starts()
    with failing(pair.destination.client, _refused("delete", _BAD_VALUE)):
        with pytest.raises(OperationFailure):
            starts.begin(former, run_record(owner="mine"), _fail)
    former.stop.stop("the term has ended")
    assert not starts.withdraw(later, "another's") and saved_instances(metadata)
    with failing(pair.destination.client, _refused("delete", _NOT_PRIMARY), times(1)):
        assert starts.withdraw(later, "mine") and not saved_instances(metadata)


def _process(clusters: dict[str, Cluster]) -> ProcessContext:
    """Return the context of a new term."""
    return ProcessContext(
        clusters,
        METADATA_DATABASE,
        LOAD_LEVELS[1],
        Pace(),
        Tuning(),
        Progress(),
        _never,
        ignore,
        StopToken(),
    )


def _fail(store: RunStore) -> None:
    raise ValueError("the start fails")
