"""Reads documents of a source, resumably after a crash, and the time span of its oplog; measures loads of clusters.

Nothing here writes.
"""
