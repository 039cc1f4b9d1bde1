"""The engine of a sync: lists and copies the source's collections, applies its change events, and cuts over.

Only the engine writes user collections on the destination.

Packages: `run` holds the objects that all phases share, such as the context and the writers. `definitions` manages the
collections, indexes and shard keys of the destination, and `documents` writes documents there. `copying` copies
collections, and `events` applies change events.

Modules: `phases` runs the phases of one instance. `coordinator` implements them for the instance that also does all
work needed only once, and `follower` for every other instance. `verification` runs alongside change event application,
`repairer` repairs the differences that the verification finds, and `commit_end` postpones the end of a commit if users
still write to the source (`late_writes` finds these writes), or if differences were repaired. `sync_subject` determines
what the verification compares. `empty_selection` warns while the filters select nothing, and `after_commit` warns of
user writes to the source after the commit. `oplog_watch` estimates how long the source's oplog keeps the needed
changes, and `pause` saves these changes during a long pause. `cutover` runs the last steps of a commit, `reversal`
reverses a committed sync, `principal_copy` copies users and roles, and `reset` gives a sync up and drops what
it has created.
"""
