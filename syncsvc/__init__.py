"""The sync service: copies a source cluster to a destination, then applies change events until commit.

A newcomer's way through the code: `cli` wires the real parts; `api` parses a request and calls `service`, which decides
whether it is carried out; a `runner` carries one run out by `engine.coordinator`, where the phases of a sync stand in
order; `engine.copying`, `engine.events` and `engine.cutover` are those phases. Of several instances that carry out one
run, all but one are an `engine.follower`. Whether a sync may begin is judged in `preflight`; `indexing` and
`shard_rules` tell what the destination is to have. What is saved, so that a killed process goes on, is in `saved`;
`source` has the readers that only a sync needs. `figures` are counters that the engine moves, `reports.sync` is all
that is known at a moment, and the other `reports` show it.
"""

from verifier.runtime.version import VERSION as __version__

__all__ = ["__version__"]
