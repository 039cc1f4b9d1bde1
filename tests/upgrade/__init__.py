"""Saved states of syncs that earlier versions have begun: the contents of both clusters after the daemon was killed."""
