"""`python -m tests.model --seeds 1-50`: runs the model test with these seeds, on clusters that the program starts."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model.plan import Profile
from tests.model.trial import Summary, attempt
from tests.support.pair import Clusters
from tests.support.recording import origin, write


def main() -> int:
    options = _parser().parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="model-"))
    results = Results()
    with Clusters() as clusters:
        for number in range(options.repeat):
            # The loops are in this order, because the runs of one profile share clusters.
            for profile in options.profiles:
                for seed in options.seeds:
                    name = f"{profile.value}-{seed}-{number}"
                    try:
                        pair = clusters.pair(profile.topology, members=3)
                        summary = attempt(seed, profile, pair, folder / name)
                    except AssertionError as error:
                        print(f"{name}: {error}", flush=True)
                        results.failed[profile.value].append(seed)
                    else:
                        print(f"{name}: {summary}", flush=True)
                        results.equal[profile.value].append(summary)
                        shutil.rmtree(folder / name)
    failed = [f"{name} {seed}" for name, seeds in results.failed.items() for seed in seeds]
    print(
        f"{len(failed)} failed: {', '.join(failed)}"
        if failed
        else "In all runs, the clusters were equal at the end."
    )
    if options.record is not None:
        seeds = f"{options.seeds[0]} to {options.seeds[-1]}"
        write(options.record, {**origin(), "seeds": seeds, "profiles": results.record()})
    return 1 if failed else 0


@dataclass
class Results:
    """The results of all runs, by the name of the profile: summaries of successful runs, and seeds of failed runs."""

    equal: dict[str, list[Summary]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def record(self) -> dict[str, Any]:
        names = dict.fromkeys([*self.equal, *self.failed])
        return {name: self._of(self.equal[name], self.failed[name]) for name in names}

    def _of(self, equal: list[Summary], failed: list[int]) -> dict[str, Any]:
        return {
            "runs": len(equal) + len(failed),
            "operations": sum(each.operations for each in equal),
            "kills": sum(each.kills for each in equal),
            "seconds": round(sum(each.seconds for each in equal)),
            "failed": failed,
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=range(1, 6),
        help="a seed, such as 7, or a range of seeds, such as 1-50 (default: 1-5)",
    )
    parser.add_argument(
        "--profile",
        dest="profiles",
        type=lambda name: [Profile(name)],
        default=list(Profile),
        metavar="|".join(each.value for each in Profile),
        help="workload and topology of the runs (default: all profiles, in turn)",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        help="number of times to run all seeds and profiles (default: 1)",
    )
    parser.add_argument("--record", type=Path, help="file for the results, as JSON")
    parser.add_argument(
        "--folder",
        type=Path,
        help="directory for the evidence of failed runs (default: a temporary directory)",
    )
    return parser


def _seeds(text: str) -> Sequence[int]:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    raise SystemExit(main())
