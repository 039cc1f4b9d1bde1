"""Writes documents on the destination. No other package does."""
