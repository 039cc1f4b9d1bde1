"""The engine of a sync: lists, copies, applies change events, cuts over. The only writer of the destination.

`run` has what all phases share: the context, the other instances, the writers. `definitions` has the collections,
indexes and shard keys of the destination, `documents` what is in them. `copying` and `events` are the two phases that
read the source. `phases` is what every instance goes through, `coordinator` what one instance does for all, `follower`
what the others do. `verification` runs beside the change events, `oplog_watch` while the source is read; `cutover` is
what a commit starts, `reversal` makes a committed sync run the other way.
"""
