"""The engine of a sync: lists, copies, applies change events, cuts over. The only writer of the destination.

Packages: `run` holds what all phases share: the context, the other instances, the writers. `definitions` manages the
collections, indexes and shard keys of the destination, and `documents` their contents. `copying` and `events` are the
two phases that read the source.

Modules: `phases` runs the phases on every instance; `coordinator` does what one instance does for all, and `follower`
is the part of every other instance. `verification` runs alongside change event application, and `oplog_watch` runs
while the source is read. `cutover` runs the steps of a commit, and `reversal` reverses a committed sync.
"""
