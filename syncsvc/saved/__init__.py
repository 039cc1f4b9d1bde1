"""The saved state of a sync, in the metadata database: with it, another process can continue after a crash."""
