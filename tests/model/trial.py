"""Makes the plan of one seed, runs it, and returns the result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.model import evidence
from tests.model.plan import Profile, plan
from tests.model.run import Run
from tests.support.pair import Pair


@dataclass(frozen=True)
class Summary:
    """The figures of a successful run. `refused` counts the operations that the server refused, by error code."""

    seconds: float
    operations: int
    refused: Counter[int]
    kills: int

    def __str__(self) -> str:
        refused = ", ".join(f"{code}: {number}" for code, number in self.refused.most_common())
        return (
            f"equal after {self.seconds:.1f} s, {self.operations} operations "
            f"({self.refused.total()} refused: {refused}), {self.kills} kills"
        )


def attempt(seed: int, profile: Profile, pair: Pair, folder: Path) -> Summary:
    """Make and run the plan of a seed and a profile; return the figures of the run.

    If the sync fails or the clusters differ at the end, write the evidence into `folder`, and raise AssertionError with
    a summary of it.
    """
    began = monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    pair.empty()
    run = Run(plan(seed, profile), pair, folder)
    try:
        run.execute()
    except Exception as error:
        raise AssertionError(
            f"Seed {seed} of {profile.value} failed: {error}\n"
            f"Again: python -m tests.model --profile {profile.value} --seeds {seed} --repeat 5\n"
            f"{evidence.keep(run, pair, folder)}"
        ) from error
    journal = run.writers.journal
    refused = Counter(code for entry in journal if entry.refused for code in entry.refused.codes)
    return Summary(monotonic() - began, len(journal), refused, run.kills)
