"""A randomized model test: random operations on the source of a sync, and kills of the daemon at random moments.

The seed determines what several threads write to the source, the points where the daemon is held meanwhile, and when it
is killed. Threads and processes race, so the same seed repeats the operations, but not their interleaving. To reproduce
a failure that does not recur at once, use `python -m tests.model --seeds 7 --repeat 20`.
"""
