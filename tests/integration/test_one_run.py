"""A cluster holds the metadata of one sync, whichever of several processes begins one first."""

from __future__ import annotations

import pytest

from syncsvc.errors import METADATA_LEFT_OVER
from syncsvc.saved.run import METADATA_DATABASE, RunStore, saved_instances
from tests.support.pair import Pair
from tests.unit.syncsvc.records import run_record
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


@pytest.mark.parametrize("instance", ["the same", "another"])
def test_of_two_that_begin_at_once_one_is_refused(pair: Pair, instance: str) -> None:
    """Both have found an empty destination before; the one that is late leaves what the other has saved by then."""
    client = pair.destination.client
    writer = ClusterWriter(client, False, StopToken())
    first = RunStore.begin(writer, run_record(instance="the same", owner="first"))
    collections = client[METADATA_DATABASE].collections
    collections.insert_one({"_id": "listed"})
    with pytest.raises(OperationError) as raised:
        RunStore.begin(writer, run_record(instance=instance, owner="second"))
    assert raised.value.kind is METADATA_LEFT_OVER
    assert saved_instances(client) == ("the same",)
    assert collections.find_one({"_id": "listed"})
    first.update(can_write=True)


def test_what_an_earlier_run_left_is_no_part_of_a_new_one(pair: Pair) -> None:
    """Also where the process is killed between the two."""
    client = pair.destination.client
    writer = ClusterWriter(client, False, StopToken())
    collections = client[METADATA_DATABASE].collectionsReversed
    collections.insert_one({"_id": "left"})
    begun = RunStore.begin(writer, run_record(owner="first"))
    assert collections.find_one() is None
    collections.insert_one({"_id": "left"})
    RunStore.take_over(writer, begun.record)
    assert collections.find_one() is None
