"""`python -m syncsvc.ctl` is `syncctl`."""

from syncsvc.ctl.cli import main

main()
