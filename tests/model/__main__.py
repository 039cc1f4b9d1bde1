"""`python -m tests.model --seeds 1-50`: runs the model test with these seeds, on clusters that it starts."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.model.plan import Profile
from tests.model.trial import attempt
from tests.support.pair import Clusters


def main() -> int:
    options = _parser().parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="model-"))
    failed = []
    with Clusters() as clusters:
        for number in range(options.repeat):
            # In this order, because the runs of one profile share clusters.
            for profile in options.profiles:
                for seed in options.seeds:
                    name = f"{profile.value}-{seed}-{number}"
                    try:
                        pair = clusters.pair(profile.topology, members=3)
                        print(f"{name}: {attempt(seed, profile, pair, folder / name)}", flush=True)
                        shutil.rmtree(folder / name)
                    except AssertionError as error:
                        print(f"{name}: {error}", flush=True)
                        failed.append(name)
    print(
        f"{len(failed)} failed: {', '.join(failed)}"
        if failed
        else "In all runs, the clusters were equal at the end."
    )
    return 1 if failed else 0


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
