"""Access to MongoDB clusters: connections, facts, collections, documents as raw bytes, change events.

Everything here only reads, with three exceptions: `writer` runs write commands for its callers, `newest` has a caller
run an update that changes nothing, and `note` writes a no-op to the oplog.
"""
