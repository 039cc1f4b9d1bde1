"""The real verifier with an observer: `python -m tests.support.observed_verifier FOLDER OPTION...`.

The verifier obeys the files in FOLDER (see `obedience`). It waits less than usual for an idle change stream and between
generations, because most tests need several of these waits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.obedience import observer
from verifier.cli import main
from verifier.compare.tuning import CheckTuning


def run(folder: Path, options: Sequence[str]) -> int:
    """Run the verifier with these options, obeying the files in `folder`, and return its exit status.

    Afterwards, this process cannot be used any more, because the verifier has changed global settings.
    """
    return main(options, observer(folder), CheckTuning(stream_wait_ms=50, least_pause=0.2))


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]), sys.argv[2:]))
