"""Access to MongoDB clusters: connections, facts, collections, documents as raw bytes, change events.

Everything here only reads, with two exceptions: `writer` runs write commands for its callers, and `note` writes a no-op
to the oplog.
"""
