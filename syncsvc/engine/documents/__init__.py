"""Writes documents on the destination: the only place that does."""
