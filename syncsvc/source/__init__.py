"""Readers of a source's documents, with resume points, and of its oplog. Never writes."""
