"""Readers of a source's documents and oplog, which can resume a copy after a crash, and of the load of either cluster.

Nothing here writes.
"""
