"""Tests calls to a cluster after a daemon with `--standby` has stopped being active: the former term must not end them.

Each period of being active is a term, whose stop token is stopped at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from syncsvc.options import StartOptions
from syncsvc.saved.journal import Sender
from syncsvc.service import Service
from syncsvc.tuning import LOAD_LEVELS
from tests.support.failpoints import failing
from tests.support.pair import Pair
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.runtime.observer import ignore
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup
from verifier.runtime.waits import LongWait

_APPLICATION = "terms"
_NOT_PRIMARY = 10107


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
