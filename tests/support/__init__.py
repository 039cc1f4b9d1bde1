"""Helpers for tests: the daemon as a process, waiting for conditions, documents of every type."""
