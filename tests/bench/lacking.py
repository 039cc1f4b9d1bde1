"""Runs the service as if both clusters lacked a server feature: `python -m tests.bench.lacking FEATURE [OPTIONS]`."""

from __future__ import annotations

import sys

from syncsvc.cli import main
from tests.support.observed import withhold

if __name__ == "__main__":
    feature, *options = sys.argv[1:]
    withhold([feature])
    raise SystemExit(main(options))
