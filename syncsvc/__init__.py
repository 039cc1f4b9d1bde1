"""The sync service: copies a source cluster to a destination, then applies change events until the commit.

Overview for newcomers:

- `cli` wires the parts together. `api` parses a request and calls `service`, which decides whether to run the command.
  `queries` and `cluster_queries` answer the requests that only read; `queries` contacts no cluster.
- `running.current` holds the run of the process. `running.runner` runs one sync with `engine.coordinator`, which
  lists the phases in order. `engine.copying`, `engine.events` and `engine.cutover` do most of their work. If several
  instances share a run, all but one use `engine.follower`.
- `preflight` decides whether a sync may begin.
- `rules` computes the definitions and shard keys of the destination's collections, and how to repair differences.
- `resuming` decides for each kind of error whether a failed sync can be resumed, and how its saved state changes.
- `principals` compares the users and roles of both clusters; `engine.principal_copy` copies those of the source.
- `saved` reads and writes the saved state, from which a restarted process continues. Its `created_collections` finds
  the collections that a sync has created on the destination, and `evidence` reads the state for `reports.report`.
- `source` reads the source's documents and oplog, and measures the load of either cluster.
- `desired` decides which command leads to the state that the configuration declares; `reconciler` sends it.
- `background` runs in threads that the engine does not wait for: `limiter` limits the speed of a sync at run time,
  `reporter` pings the clusters, saves the journal and logs the progress, `notifier` posts to a webhook, and
  `dashboards` writes documents for the dashboards of mongosync.
- `figures` are counters that the engine updates, and values computed from them. `reports.sync` is a snapshot of
  everything that a process knows about the sync, and most other `reports` present this snapshot.
- `ctl` is `syncctl`, a client of the HTTP API that imports only `request_file` from the service.
"""

from verifier.runtime.version import VERSION as __version__

__all__ = ["__version__"]
