"""Reads the documents of a source, resumably after a crash, and its oplog; measures the load of either cluster.

Nothing here writes.
"""
