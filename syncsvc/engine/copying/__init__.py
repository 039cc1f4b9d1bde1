"""Copies the documents that exist when a sync begins."""
