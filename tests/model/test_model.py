"""Runs the model test with a few seeds: at the end of every run, both clusters must be equal.

Some profiles require known differences, such as new names. `python -m tests.model` runs other seeds, or repeats one of
these. Another test checks that the plan of a run depends on its seed only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.plan import Profile, plan
from tests.model.trial import attempt
from tests.support.pair import Clusters
from tests.support.selection import full

SEEDS = [1, *map(full, range(2, 11))]
# The profiles that `make test` leaves out, because they mostly repeat others. DATA and MOSTLY_DEFINITIONS run the
# operations of DEFINITIONS in other proportions, and OLD_SOURCE on an older source. SHARDED runs the operations of
# INSTANCES with one instance, FROM_SHARDED to a replica set, and SHARED_SOURCE on replica sets. RENAMED and BESIDE
# differ only in their destination.
_REPEATING = {
    *(Profile.DATA, Profile.MOSTLY_DEFINITIONS, Profile.OLD_SOURCE),
    *(Profile.SHARDED, Profile.FROM_SHARDED, Profile.SHARED_SOURCE),
    *(Profile.RENAMED, Profile.BESIDE),
}
PROFILES = [full(each) if each in _REPEATING else each for each in Profile]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.value)
def test_every_run_ends_equal(
    profile: Profile, seed: int, clusters: Clusters, tmp_path: Path
) -> None:
    attempt(seed, profile, clusters.pair(profile.topology, members=3), tmp_path)


def test_equal_seeds_give_equal_plans() -> None:
    for profile in (Profile.DEFINITIONS, Profile.INSTANCES):
        assert repr(plan(7, profile)) == repr(plan(7, profile))
        assert repr(plan(7, profile)) != repr(plan(8, profile))
