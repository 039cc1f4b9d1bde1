"""Copies the documents that are there when a sync begins."""
