"""The real verifier with an observer: `python -m tests.support.observed_verifier FOLDER ...options of the verifier`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.obedience import observer
from verifier.cli import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[2:], observer(Path(sys.argv[1]))))
