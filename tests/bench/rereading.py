"""Variants of a sync: with the diffs of updates from the source's oplog, and without them, as before MongoDB 6.0.

Without diffs, updated documents are read again from the source. The source of this benchmark is the same in both cases;
only the service treats it as if it had no diffs.
"""

from __future__ import annotations

from functools import partial

from tests.bench.variants import Variant, instances
from verifier.cluster.features import RAW_UPDATES


def variants() -> list[Variant]:
    program = ("tests.bench.lacking", RAW_UPDATES.name)
    return [
        Variant("with diffs"),
        Variant("without diffs", run=partial(instances, program=program)),
    ]
