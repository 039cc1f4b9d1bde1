"""Readers of a source's documents, oplog and load. The readers of documents can resume after a crash. None writes."""
