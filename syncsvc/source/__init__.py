"""Reads the documents and the oplog of a source, resumably. Never writes."""
