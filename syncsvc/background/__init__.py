"""Threads that run beside the sync: they limit its speed, save and log its progress, and tell others about it."""
