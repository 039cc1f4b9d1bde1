"""Reads MongoDB clusters: connections, facts, collections, documents as raw bytes, change events. Never writes."""
