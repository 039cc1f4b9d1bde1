"""A randomized model test: every operation that a source may run, at random moments of a sync, with random kills.

The seed determines the writes of several threads to the source, the points where the daemon is held meanwhile, and its
kills. Threads and processes race, so the same seed repeats the operations, but not their interleaving. To reproduce a
failure that does not recur at once, use `python -m tests.model --seeds 7 --repeat 20`.
"""
