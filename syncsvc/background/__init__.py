"""The threads that run beside the sync: they limit its speed, save, log and publish its progress, and post notices."""
