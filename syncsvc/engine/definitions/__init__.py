"""Manages collections, indexes, views and shard keys of the destination.

Until the commit, collections and their indexes have weaker definitions there, the stand-ins (module `standin`).
"""
