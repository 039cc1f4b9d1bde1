"""The real verifier with an observer: `python -m tests.support.observed_verifier FOLDER OPTION...`.

Its waits for an idle change stream and between generations are shorter than usual, because most tests need several.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.obedience import observer
from verifier.cli import main
from verifier.compare.tuning import CheckTuning


def run(folder: Path, options: Sequence[str]) -> int:
    """Run the verifier, and return its exit status. This process cannot be used for anything else."""
    return main(options, observer(folder), CheckTuning(stream_wait_ms=50, least_pause=0.2))


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]), sys.argv[2:]))
