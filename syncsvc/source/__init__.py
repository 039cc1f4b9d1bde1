"""Reads the documents and the oplog of a source, with resume points. Never writes."""
