"""Readers of a source's documents, which can resume after a crash, and of its oplog. They never write."""
