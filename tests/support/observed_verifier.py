"""The real verifier with an observer: `python -m tests.support.observed_verifier FOLDER ...options of the verifier`.

It waits less than usual for an idle change stream and between generations, as most tests do so several times.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.obedience import observer
from verifier.cli import main
from verifier.cluster import changes
from verifier.compare import check

if __name__ == "__main__":
    changes._AWAIT_MS = 50
    check._LEAST_PAUSE = 0.2
    raise SystemExit(main(sys.argv[2:], observer(Path(sys.argv[1]))))
