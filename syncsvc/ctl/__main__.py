"""Lets `python -m syncsvc.ctl` run the `syncctl` command."""

from syncsvc.ctl.cli import main

main()
