"""Sharded clusters for tests: real config servers and shards, behind `mongos` or a stand-in for it."""
