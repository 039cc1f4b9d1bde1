"""Lets `python -m syncsvc` run the `syncsvc` command."""

from syncsvc.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
