"""A randomized model test: everything that a source may do, at random moments of a sync, with random kills.

One seed decides what several threads write to the source, where the daemon is held while they do, and when it is
killed. Threads and processes race, so the same seed is the same story told again, not the same interleaving: a failure
that does not come back at once comes back with `python -m tests.model --seeds 7 --repeat 20`.
"""
