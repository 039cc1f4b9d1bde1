"""Threads that the sync does not wait for: they limit its speed, save, log and publish its progress."""
