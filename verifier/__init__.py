"""The verifier: reads two clusters and says whether they hold the same.

It writes no user documents: its only writes are those of its own state. What the sync service needs of it (`runtime`,
`cluster`, `compare`) lives here too, so that the checker never depends on what it checks.

The process begins at `cli`. `settings` reads the options, with `selection` those that say what to verify. `app` and
`api` are the HTTP API, over `service`, which owns the check; `answers`, `metrics` and `report` say what is told of it,
to programs and to people, and `announce` logs it. `errors` is the table of everything that has a name.
"""

from verifier.runtime.version import VERSION as __version__

__all__ = ["__version__"]
