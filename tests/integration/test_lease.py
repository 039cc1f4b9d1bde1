"""Tests the lease in the metadata: which daemon gets and keeps it, and the effect of late or lost commands."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.lease import LEASES, LeaseKeeper
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

LONG, EXPIRED = 3600.0, 0.0

pytestmark = across(REPLICA_SETS, SHARDED)


def _keeper(pair: Pair, seconds: float, instance: str = "me") -> LeaseKeeper:
    client = pair.destination.client
    writer = ClusterWriter(client, False, StopToken())
    return LeaseKeeper(client[METADATA_DATABASE], writer, instance, "host", "address:1", seconds)


def test_another_process_takes_a_released_lease(pair: Pair) -> None:
    first, second = _keeper(pair, LONG), _keeper(pair, LONG)
    assert first.read() is None and first.renew({}) is None
    taken = first.claim()
    assert first.holds(taken) and (taken.host, taken.address) == ("host", "address:1")
    # A valid lease stays with its holder, also if its claim is repeated after a lost reply.
    assert [first.claim(), second.claim()] == [taken, taken]
    # A daemon of another version may save more.
    leases = pair.destination.client[METADATA_DATABASE][LEASES]
    leases.update_one({"_id": "me"}, {"$set": {"unknown": 1}})
    second.release()
    assert second.renew({"state": "IDLE"}) is None
    renewed = first.renew({"state": "RUNNING", "lag": {"overallLagSeconds": None}})
    assert renewed is not None and renewed.since == taken.since and renewed.expires > taken.expires
    shown = second.read()
    assert shown == renewed and not second.holds(shown) and not shown.expired
    assert shown.progress == {"state": "RUNNING", "lag": {"overallLagSeconds": None}}
    first.release()
    assert second.read() is None
    assert second.holds(second.claim())


def test_an_expired_lease_is_kept_until_another_process_takes_it(pair: Pair) -> None:
    first, second = _keeper(pair, EXPIRED), _keeper(pair, LONG)
    taken = first.claim()
    found = second.read()
    assert found is not None and found.expired
    renewed = first.renew({})
    assert renewed is not None and renewed.since == taken.since
    assert second.holds(second.claim())
    # The former holder can neither renew nor release the lease.
    assert first.renew({}) is None
    first.release()
    found = first.read()
    assert found is not None and second.holds(found) and found.progress is None


def test_one_of_many_concurrent_claims_succeeds(pair: Pair) -> None:
    keepers = [_keeper(pair, LONG) for _ in range(8)]
    other = _keeper(pair, LONG, "another instance")
    assert other.holds(other.claim())
    with ThreadPoolExecutor(max_workers=8) as executor:
        leases = list(executor.map(LeaseKeeper.claim, keepers))
    assert len({each.holder for each in leases}) == 1
    won = [keeper.holds(lease) for keeper, lease in zip(keepers, leases, strict=True)]
    assert won.count(True) == 1
