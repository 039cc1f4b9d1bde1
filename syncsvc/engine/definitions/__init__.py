"""Manages collections, indexes, views and shard keys of the destination, and looks up those of the source.

Until the commit, collections on the destination and their indexes have weaker definitions, the stand-ins (module
`standin`).
"""
