"""The entry point of `python -m verifier`."""

from __future__ import annotations

from verifier.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
