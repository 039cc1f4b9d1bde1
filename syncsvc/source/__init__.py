"""Readers of a source's documents, oplog and load. The document readers can resume after a crash. No reader writes."""
