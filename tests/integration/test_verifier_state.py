"""Tests which process may continue a saved check of the verifier, and which one must refuse to continue it.

Also tests the counts of saved mismatches, and saves that hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import bson
import pytest

from tests.support.failpoints import delayed, failing, times
from tests.support.pair import Pair
from tests.support.waiting import wait_for
from tests.support.writes import started
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.cluster.namespace import Namespace
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check import begin
from verifier.compare.check_progress import LASTING, Phase
from verifier.compare.errors import INCOMPATIBLE_METADATA, OTHER_CHECK_SAVED, SUPERSEDED
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch
from verifier.compare.record import FORMATS, Request, SentCommand
from verifier.compare.store import CheckStore
from verifier.compare.task import digest_of, recheck_of
from verifier.errors import UNSUPPORTED_VERSION
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.observer import ignore
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken
from verifier.service import Service
from verifier.settings import read_settings

STATE = "__mdb_internal_syncsvc_verifier"
_APPLICATION = "slow save"


def _never(name: str, work: Callable[[], None]) -> None:
    """Ignore `work` instead of running it in a thread, so that a check can begin but makes no progress."""


class Processes:
    """Creates services of the verifier one after another, as successive processes for one pair of clusters would."""

    def __init__(self, source: Cluster, destination: Cluster) -> None:
        self._clusters = (source, destination)

    def start(
        self, *options: str, swapped: bool = False, metadata: Cluster | None = None
    ) -> Service:
        """Start a process. `metadata` is the cluster of --metaURI; by default, the destination stores the state."""
        source, destination = reversed(self._clusters) if swapped else self._clusters
        uris = ("--srcURI", "a", "--destURI", "b")
        settings = read_settings([*uris, *(options or ("--verifyAll",))])
        service = Service(
            *(source, destination, metadata or self._clusters[1], settings),
            _never,
            ignore,
            StopToken(),
        )
        service.recover()
        return service


@contextmanager
def begun(pair: Pair, application: str) -> Iterator[CheckStore]:
    """Begin a check that no thread continues, and yield its store. `application` is the `appName` of its clients."""
    stop = StopToken()
    with ExitStack() as stack:
        source, destination = (
            open_cluster(name, side.uri, application)
            for name, side in (("source", pair.source), ("destination", pair.destination))
        )
        for each in (source, destination):
            stack.callback(each.client.close)
        writer = ClusterWriter(destination.client, False, stop)
        store = CheckStore(destination.client, writer, STATE, stop)
        begin(source, destination, Request(), store, stop)
        yield store


@pytest.fixture
def processes(pair: Pair) -> Iterator[Processes]:
    pair.source.client.d.c.insert_one({"_id": 1})
    source = open_cluster("source", pair.source.uri, "test")
    destination = open_cluster("destination", pair.destination.uri, "test")
    yield Processes(source, destination)
    for each in (source, destination):
        each.client.close()


def _refused(kind: ErrorKind, call: Callable[[], object]) -> str:
    with pytest.raises(OperationError) as raised:
        call()
    assert raised.value.kind is kind
    return raised.value.description


def test_a_restarted_check_keeps_its_filter(pair: Pair, processes: Processes) -> None:
    processes.start().check({"$or": [{"a": 1}, {"b": {"$gt": 2}}]}, SentCommand("check", 0.0))
    assert processes.start().progress().phase is Phase.CHECK
    saved = pair.destination.client[STATE].check.find_one()
    assert saved is not None and saved["filter"]


def test_an_old_cluster_for_the_state_is_refused(pair: Pair, processes: Processes) -> None:
    old = open_cluster("metadata", pair.source.uri, "test")
    with closing(old.client):
        old = replace(old, facts=replace(old.facts, version=(5, 0, 31)))
        refusal = _refused(UNSUPPORTED_VERSION, lambda: processes.start(metadata=old))
    assert refusal == "The cluster of --metaURI runs MongoDB 5.0.31, which is too old."


def test_the_state_of_other_clusters_is_refused(processes: Processes) -> None:
    processes.start().check(None, SentCommand("check", 0.0))
    _refused(OTHER_CHECK_SAVED, lambda: processes.start(swapped=True))
    assert processes.start("--clean", "--verifyAll", swapped=True).progress().phase is Phase.IDLE


@pytest.mark.parametrize(
    "options",
    [
        ("--verifyAll", "--docCompareMethod", "ignoreFieldOrder"),
        ("--includeNamespaces", '[{"database": "d"}]'),
        ("--srcNamespace", "d", "--dstNamespace", "e"),
    ],
)
def test_the_state_of_other_options_is_refused(
    pair: Pair, processes: Processes, options: tuple[str, ...]
) -> None:
    processes.start().check(None, SentCommand("check", 0.0))
    _refused(OTHER_CHECK_SAVED, lambda: processes.start(*options))
    # Once the check has ended, a process with other options begins a new one.
    pair.destination.client[STATE].check.update_one(
        {}, {"$set": {"ended": 1.0, "verdict": {"outcome": "passed", "reasons": [], "error": None}}}
    )
    assert processes.start(*options).progress().verdict is None
    assert processes.start().progress().verdict is not None


def test_the_state_of_a_newer_version_is_refused(pair: Pair, processes: Processes) -> None:
    processes.start().check(None, SentCommand("check", 0.0))
    check = pair.destination.client[STATE].check
    check.update_one({}, {"$set": {"format": FORMATS.current + 1}})
    saved = check.find_one()
    refusal = _refused(INCOMPATIBLE_METADATA, processes.start)
    assert f"format {FORMATS.current + 1}: the format is of a newer version" in refusal
    assert check.find_one() == saved


def test_only_the_last_process_continues_a_check(processes: Processes) -> None:
    first = processes.start()
    first.check(None, SentCommand("check", 0.0))
    second = processes.start()
    _refused(SUPERSEDED, lambda: first.writes_off(SentCommand("writesOff", 0.0)))
    second.writes_off(SentCommand("writesOff", 0.0))
    assert second.progress().writes_off and not first.progress().writes_off


def test_documents_that_have_differed_for_long_are_counted(pair: Pair) -> None:
    keys = [bson.encode({"_id": number}) for number in range(3)]
    found = [DocumentMismatch(Namespace("d", "c"), key, Difference.CONTENT) for key in keys]
    now = 1_000.0
    since = {digest_of(keys[0]): now - LASTING, digest_of(keys[1]): now - LASTING + 1}
    with begun(pair, "test") as store:
        store.add_document_mismatches(found, since, now)
        counts = store.mismatch_counts()
    assert (counts.documents, counts.lasting) == ({Difference.CONTENT: 3}, 1)


def test_saved_rechecks_and_mismatches_are_read_at_the_time_of_their_save(pair: Pair) -> None:
    """Every read of the saved state must name a cluster time, and must count the saved rows themselves.

    Without the time, a newly elected primary could return an older state. The number of rows that a server keeps can be
    wrong after a crash. In both cases, a check could pass although a difference is saved.
    """
    name = Namespace("d", "c")
    state = pair.destination.client[STATE]
    with begun(pair, _APPLICATION) as store:
        store.add_rechecks(0, [recheck_of(name, bson.encode({"_id": 1}))])
        found = DefinitionMismatch(name, Difference.MISSING, Aspect.EXISTENCE)
        state.command("profile", 2)
        store.add_definition_mismatches([found], 1.0)
        assert [*store.rechecks()] and store.has_rechecks(0) and not [*store.tasks()]
        assert store.mismatch_counts().definitions == 1
        assert [*store.definition_mismatches(None, None)]
        assert store.one_sided(name) == (0, 0)
        state.command("profile", 0)
    read = [
        each["command"]
        for each in state["system.profile"].find({"appName": _APPLICATION})
        if each["op"] in ("query", "command")
    ]
    assert {next(iter(each)) for each in read} == {"find", "aggregate"}
    assert all("afterClusterTime" in each["readConcern"] for each in read)


def test_a_hanging_save_does_not_block_commands(pair: Pair) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(begun(pair, _APPLICATION))
        delay = {"failCommands": ["update"], "blockConnection": True, "blockTimeMS": 5_000}
        data = {**delay, "appName": _APPLICATION}
        stack.enter_context(failing(pair.destination.client, data, times(1)))
        with started(lambda: store.update(recheck_seconds=(1.0,))):
            wait_for(lambda: _is_delayed(pair), "the save hangs")
            with impatient(0.3):
                _refused(CLUSTER_UNREACHABLE, lambda: store.update(recheck_seconds=()))
            assert _is_delayed(pair), "the save ended too early to prove anything"
    assert store.record.recheck_seconds == (1.0,)


def _is_delayed(pair: Pair) -> bool:
    return bool(delayed(pair.destination.client, "update", _APPLICATION))
