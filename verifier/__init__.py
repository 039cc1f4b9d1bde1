"""The verifier: compares two clusters and reports whether they hold the same data.

It writes no user documents: its only writes are its own state, and no-ops to the oplog (`cluster.note`). The packages
that the sync service uses as well (`runtime`, `cluster`, `compare`) live here, so that the verifier never depends on
the code that it checks.

The process starts in `cli`. `settings` reads the options, and `selection` those that select what to verify. `app` and
`api` are the HTTP API on top of `service`, which owns the check. `answers`, `metrics` and `report` present a check to
programs and to people, and `announce` logs it. `errors` is the table of all named errors.
"""

from verifier.runtime.version import VERSION as __version__

__all__ = ["__version__"]
