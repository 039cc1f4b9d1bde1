"""Copies the documents of collections. Later writes to these collections are applied as change events."""
