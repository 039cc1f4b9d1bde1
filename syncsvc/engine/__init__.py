"""The engine of a sync: lists, copies, applies change events, cuts over. The only writer of the destination.

`phases` is what every instance of a run goes through, `coordinator` what one does for all, `follower` what the others
do; `run_context` is what they are given. `definitions` has the collections, indexes and shard keys of the destination,
`documents` what is in them. `copying` and `events` are the two phases that read the source; `verification` goes along
with the latter, `cutover` is what a commit starts, `reversal` makes it run the other way. `writeblock` and
`balancers` take from the clusters what they give back at the end.
"""
