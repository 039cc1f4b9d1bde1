"""Manages collections, indexes, views and shard keys of the destination: until the commit, they are stand-ins."""
