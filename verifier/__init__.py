"""The verifier: compares two clusters and reports whether they hold the same data.

The verifier writes no user documents: it only writes its own state, and no-ops to the oplog (`cluster.note`). The
packages that the sync service also uses (`runtime`, `cluster`, `compare`, `page`) are here, so that the verifier never
depends on the code that it checks.

The process starts in `cli`. `settings` reads the options, and `selection` reads the options that select the namespaces
to verify. `app` and `api` are the HTTP API on top of `service`, which owns the check. `answers`, `overview`, `metrics`
and `reports` present a check to programs and to people. `notices` posts state changes to a webhook, and `announce` logs
the progress. `errors` is the table of all named errors.
"""

from verifier.runtime.version import VERSION as __version__

__all__ = ["__version__"]
